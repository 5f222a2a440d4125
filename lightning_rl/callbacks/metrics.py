"""Writes metrics to all loggers: rows at `env_steps`, with names of the registry.

An iteration may be one env step, and a run may have a billion; so rows are written at intervals, not per iteration.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn

from lightning_rl.callbacks.loggers import CSVLogger, TensorBoardLogger
from lightning_rl.callbacks.metric_names import EVAL_RETURN, TRAIN_RETURN
from lightning_rl.errors import ConfigError, short_repr
from lightning_rl.process_memory import resident_mb

__all__ = [
    "MetricsCallback",
    "ensure_metrics_callback",
    "latest_metrics",
    "leave_out_seconds",
    "recall_best_evaluation",
]

BY_HAND = 50  # env steps between two rows without a run's config: 2,000 rows in 100,000 steps
AVERAGED = ("train/", "time/collect_s", "time/learn_s")
FLUSH_SECONDS = 10.0  # a killed run loses at most this much of its curves


class MetricsCallback(Callback):
    """Collects an iteration's numbers from policy and data, times it, and writes rows to every logger of the Trainer.

    Put it before the callbacks that read `latest`, such as stop rules, progress and status, which see every iteration.
    A row is written after the iteration that passes a multiple of `every_env_steps`, before an evaluation, and at the
    end. So that long runs show metrics soon, rows also come after the first iteration and then at doubling env steps up
    to the first multiple. `train/` metrics and times of an iteration are means over the iterations since the last row,
    `time/fps` is that of all of these, and every other metric is the newest value.

    Args:
        hparams: the run's configuration, for TensorBoard's HPARAMS tab and the like; `None` writes none.
        every_env_steps: least env steps between two rows; 1: a row for each iteration.

    Attributes:
        latest: the newest value of every metric.
        best_return: highest mean return of an evaluation; of the training window if there was no evaluation.
        evaluated_at: env steps of the policy of the newest evaluation; `None` before the first.
    """

    def __init__(self, hparams: Mapping[str, Any] | None = None, every_env_steps: int = 1) -> None:
        self.hparams, self.every_env_steps = hparams, every_env_steps
        self.latest: dict[str, float] = {}
        self.evaluated_at: int | None = None
        self._best: dict[str, float] = {}
        self._hparams_written = False
        self._seconds_before = 0.0
        self._started = self._iteration_started = self._flushed = self._evaluation_started = time.perf_counter()
        self._other_seconds = 0.0  # of this iteration, in which the run neither collected nor learned
        self._env_steps = 0
        self._row: dict[str, float] = {}  # values of the next row, except for means
        self._sums: dict[str, list[float]] = {}  # metric → [sum, count] over the iterations since the last row
        self._row_began = (0, 0.0)  # env steps of the last row, and seconds of iterations since then

    @property
    def best_return(self) -> float | None:
        """Highest mean return so far; `None` before the first episode ended."""
        return self._best.get(EVAL_RETURN, self._best.get(TRAIN_RETURN))

    @property
    def seconds(self) -> float:
        """Seconds of training, including earlier processes of a resumed run."""
        return self._seconds_before + time.perf_counter() - self._started

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start the clocks; in a resumed run, drop what the loggers have after the checkpoint."""
        step = int(pl_module.env_steps)
        for logger in trainer.loggers:
            if isinstance(logger, CSVLogger | TensorBoardLogger):
                logger.continue_from(step)
            if self.hparams is not None and not self._hparams_written:
                logger.log_hyperparams(dict(self.hparams))
        self._hparams_written = True
        self._started = self._iteration_started = self._flushed = time.perf_counter()
        self._env_steps = step
        if not self._row:
            self._row_began = (step, 0.0)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Collect an iteration's metrics, and write a row if one is due."""
        now, step = time.perf_counter(), int(pl_module.env_steps)
        seconds = max(now - self._iteration_started - self._other_seconds, 1e-9)
        result = {f"train/{name}": float(value) for name, value in pl_module.iteration_metrics.items()}
        datamodule: Any = getattr(trainer, "datamodule", None)
        if datamodule is not None:
            result |= datamodule.pop_iteration_metrics()
        result["time/fps"] = (step - self._env_steps) / seconds
        result["time/iterations"] = float(pl_module.iterations)
        result["time/learn_s"] = float(pl_module.learn_seconds)
        result["time/total_s"] = self.seconds
        callbacks: list[Any] = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
        hooked = [callback for callback in callbacks if hasattr(callback, "on_train_result")]
        due = trainer.is_last_batch or self._is_due(step)
        if due or hooked:
            result["sys/rss_mb"] = resident_mb()
        for callback in hooked:
            callback.on_train_result(trainer=trainer, policy=pl_module, result=result)
        self._take(result, seconds)
        self._env_steps, self._iteration_started, self._other_seconds = step, now, 0.0
        if due:
            self._report(trainer)
        if now - self._flushed > FLUSH_SECONDS and not trainer.is_last_batch:
            self._flush(trainer, now)

    def _is_due(self, step: int) -> bool:
        """Whether a multiple was passed, or, before the first one, twice the env steps of the last row."""
        last, every = self._row_began[0], self.every_env_steps
        return step // every > self._env_steps // every or 2 * last <= step < every

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start the evaluation's clock, after writing the row of the last iteration."""
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            self._report(trainer)
        self._evaluation_started = time.perf_counter()

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Write the evaluation to the row of the last iteration."""
        if trainer.sanity_checking:
            return
        seconds = time.perf_counter() - self._evaluation_started
        self._other_seconds += seconds
        result = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("eval/")}
        result["time/eval_s"] = seconds
        datamodule: Any = getattr(trainer, "datamodule", None)
        self.record_evaluation(trainer, result, getattr(datamodule, "evaluated_at", int(pl_module.env_steps)))

    def record_evaluation(self, trainer: Trainer, result: dict[str, float], step: int) -> None:
        """Write the result of an evaluation of the policy at `step` environment steps."""
        self.evaluated_at = step
        self._note(result)
        self._log(trainer, result, step)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Write the epoch's rows to the disk."""
        self._flush(trainer, time.perf_counter())

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Write the last row, and keep the time for a later fit of the same objects."""
        self._report(trainer)
        self._seconds_before, self._started = self.seconds, time.perf_counter()

    def on_save_checkpoint(self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Write rows to the disk: a run resumed from this file then finds all rows up to it."""
        self._flush(trainer, time.perf_counter())

    def state_dict(self) -> dict[str, Any]:
        """Totals and means, as plain numbers."""
        numbers = {"best": dict(self._best), "latest": dict(self.latest), "evaluated_at": self.evaluated_at}
        row = {"row": dict(self._row), "sums": {name: list(sums) for name, sums in self._sums.items()}}
        return {"seconds": self.seconds, **numbers, **row, "row_began": list(self._row_began)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the totals."""
        self._seconds_before, self.evaluated_at = float(state_dict["seconds"]), state_dict["evaluated_at"]
        self._best, self.latest, self._row = (_numbers(state_dict[name]) for name in ("best", "latest", "row"))
        self._sums = {name: [float(total), float(count)] for name, (total, count) in state_dict["sums"].items()}
        steps, seconds = state_dict["row_began"]
        self._row_began = (int(steps), float(seconds))

    def _take(self, result: dict[str, float], seconds: float) -> None:
        """Add an iteration's numbers to the next row."""
        for name, value in result.items():
            try:
                result[name] = number = float(value)  # users' hooks may add numpy numbers and tensors
            except (TypeError, ValueError) as error:
                raise ConfigError(f"the metric {name!r} is {short_repr(value)}; expected a number") from error
            if name.startswith(AVERAGED):
                sums = self._sums.setdefault(name, [0.0, 0.0])
                sums[0] += number
                sums[1] += 1.0
        self._note(result)
        self._row.update(result)
        self._row_began = (self._row_began[0], self._row_began[1] + seconds)

    def _note(self, result: Mapping[str, float]) -> None:
        self.latest.update(result)
        for name in (TRAIN_RETURN, EVAL_RETURN):
            if name in result:
                self._note_best(name, result[name])

    def _note_best(self, name: str, value: float) -> None:
        self._best[name] = max(value, self._best.get(name, value))

    def _report(self, trainer: Trainer) -> None:
        """Write a row with the metrics since the last one, if there are any."""
        if not self._row:
            return
        row = {**self._row, **{name: total / count for name, (total, count) in self._sums.items()}}
        if "time/fps" in row:
            row["time/fps"] = (self._env_steps - self._row_began[0]) / max(self._row_began[1], 1e-9)
        row.setdefault("sys/rss_mb", resident_mb())
        self.latest["sys/rss_mb"] = row["sys/rss_mb"]
        self._row, self._sums, self._row_began = {}, {}, (self._env_steps, 0.0)
        self._log(trainer, row, self._env_steps)

    def _log(self, trainer: Trainer, row: Mapping[str, float], step: int) -> None:
        show_to_callbacks(trainer, row)
        for logger in trainer.loggers:
            logger.log_metrics(dict(row), step=step)

    def _flush(self, trainer: Trainer, now: float) -> None:
        self._flushed = now
        for logger in trainer.loggers:
            if isinstance(logger, CSVLogger | TensorBoardLogger):  # together, so that both files end at the same step
                logger.save()


def _numbers(saved: Mapping[str, Any]) -> dict[str, float]:
    """Metrics from a checkpoint."""
    return {name: float(value) for name, value in saved.items()}


def show_to_callbacks(trainer: Trainer, result: Mapping[str, float]) -> None:
    """Put numbers into `trainer.callback_metrics`, which EarlyStopping, ModelCheckpoint and other callbacks read.

    `self.log` would do so too, at 0.25 ms per number and with float32's 24 bits. The property returns Lightning's own
    dict after an update, and Lightning only ever adds numbers to it (2.6.6).
    """
    numbers = torch.tensor([*result.values()], dtype=torch.float64).unbind()  # 25 at once: a fifth of the time
    trainer.callback_metrics.update(zip(result, numbers, strict=True))


def metrics_callback(trainer: Trainer) -> MetricsCallback | None:
    """The metrics callback of a Trainer; `None` without one."""
    callbacks: list[Any] = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    return next((callback for callback in callbacks if isinstance(callback, MetricsCallback)), None)


def ensure_metrics_callback(trainer: Trainer) -> None:
    """Add the metrics callback to a Trainer that a user created, unless it has one."""
    if metrics_callback(trainer) is None:
        trainer.callbacks.insert(0, MetricsCallback(every_env_steps=BY_HAND))  # pyright: ignore[reportAttributeAccessIssue]


def leave_out_seconds(trainer: Trainer, seconds: float) -> None:
    """Leave out the time that a callback took from the current iteration's, and so from `time/fps`."""
    if (metrics := metrics_callback(trainer)) is not None:
        metrics._other_seconds += seconds


def recall_best_evaluation(trainer: Trainer, value: float) -> None:
    """Count an evaluation that a best file tells of: a run's last one follows the last save, which does not know it."""
    if (metrics := metrics_callback(trainer)) is not None:
        metrics._note_best(EVAL_RETURN, value)


def latest_metrics(trainer: Trainer) -> dict[str, float]:
    """The newest value of every metric, including those logged through Lightning (`self.log`)."""
    metrics = metrics_callback(trainer)
    latest = {} if metrics is None else metrics.latest
    logged = {
        name: float(value)
        for name, value in trainer.callback_metrics.items()
        if name not in latest and torch.as_tensor(value).numel() == 1
    }
    return {**logged, **latest}
