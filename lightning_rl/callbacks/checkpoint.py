"""Writes checkpoints at multiples of env steps, by time and at the end, and keeps the newest and the best ones.

Lightning's ModelCheckpoint counts optimizer steps: it saves nothing while they stand still (a warm-up), and under
manual optimization its step and time triggers miss. This one counts environment steps and seconds, and saves only
between iterations.

When to save, so that a resumed run neither repeats nor loses an iteration (from Lightning 2.6's loops, and tested):

- in the middle of an epoch, in `on_train_batch_end`. `batch_progress` then reads processed = k, completed = k − 1,
  which the loop recognizes as "restarted on train batch end" and completes to k.
- after the last iteration of an epoch, in `on_train_epoch_end`, after the validation. If it were saved in
  `on_train_batch_end` already, the resumed run would skip that validation and the epoch-end hooks.
- a best file, in `on_validation_end`: the loop then skips the validation that was done and continues with the epoch
end.

A run that stops in the middle of an epoch is also saved in `on_train_batch_end`: in the epoch-end hooks the loop counts
the interrupted epoch as complete, and all later epochs, hence evaluations, would come at other iterations than in an
uninterrupted run.
"""

from __future__ import annotations

import logging
import math
import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.trainer.states import TrainerFn

from lightning_rl.callbacks.metric_names import EVAL_RETURN, check_metric
from lightning_rl.callbacks.metrics import latest_metrics, recall_best_evaluation
from lightning_rl.callbacks.signals import HardStop
from lightning_rl.errors import CheckpointError, NonFiniteError, SaveError
from lightning_rl.run_directory.atomic import duplicate, remove_staging
from lightning_rl.run_directory.checkpoint_files import newest_checkpoint
from lightning_rl.run_directory.checkpoints import BEST_FILE
from lightning_rl.schedules import to_env_steps
from lightning_rl.schema.ranges import Count, CountEnvSteps, Positive, Whole
from lightning_rl.schema.signatures import check_keywords

__all__ = ["RLCheckpoint"]

log = logging.getLogger(__name__)

STEP_FILE = re.compile(r"step_(\d+)\.ckpt")
MOST_SAVING = 0.05  # largest share of the wall time for saves by time
LAST_WAITS_S = (0.5, 1.0, 2.0)  # waits before further attempts to write a run's last checkpoint


class RLCheckpoint(Checkpoint):
    """Keeps `last.ckpt`, the newest `step_*.ckpt` and the best `best_*.ckpt` in a directory.

    Use it with `Trainer(plugins=[AtomicCheckpointIO()])`, which keeps the old file if a new one cannot be written. A
    file holds where the episodes stand, so that no save changes training, and a run resumed from any file
    equals the run that continued, bit for bit (`RolloutDataModule.describe_loss` names the exceptions).

    Args:
        dirpath: directory of the checkpoints, RUN_DIR/checkpoints.
        every_env_steps: save at the first iteration past each multiple of this, which may be a fraction of the run such
            as "10%"; `None` turns this off.
        every_seconds: save last.ckpt when this much wall-clock time has passed since the last save (and 20 times the
            duration of that save, so that large replay buffers take at most a twentieth of the time); `None` turns this
            off.
        keep: number of `step_*.ckpt`, and of `best_*.ckpt`, to keep; 0 keeps only `last.ckpt`.
        monitor: metric that decides which files are best, read after each evaluation; `None` keeps no best files.
        mode: "max" or "min", whichever is best for the metric.
        at_end: save when fit ends, including by a signal or by an exception between two iterations.
        max_failures: number of consecutive failed writes after which an error is raised. A run's last checkpoint is
            attempted several times within seconds; then the run has failed.

    Attributes:
        best_model_path: the best file so far, or "" (Lightning's name: `trainer.validate(ckpt_path="best")`; its
            launchers that fork or spawn ranks set it in the process that started them).
        after_save: called when last.ckpt has been written.
        unsaved: why the last checkpoint of an interrupted run could not be written; `None` if it was written.

    Raises:
        ConfigError: a number is out of range, or the metric is unknown.
    """

    @check_keywords("checkpoint")
    def __init__(
        self,
        dirpath: str | Path,
        *,
        every_env_steps: CountEnvSteps | None = 100_000,
        every_seconds: Positive | None = 60.0,
        keep: Whole = 3,
        monitor: str | None = EVAL_RETURN,
        mode: Literal["max", "min"] = "max",
        at_end: bool = True,
        max_failures: Count = 3,
    ) -> None:
        if monitor is not None:
            check_metric("checkpoint.monitor", monitor)
        self.dirpath, self.keep, self.monitor, self.mode = Path(dirpath), keep, monitor, mode
        self.every_env_steps, self.every_seconds, self.at_end = to_env_steps(every_env_steps), every_seconds, at_end
        self.max_failures = max_failures
        self.best: dict[str, float] = {}  # file name → monitored value
        self.best_model_path = ""
        self._sign = 1.0 if mode == "max" else -1.0
        self.after_save: Callable[[], None] = lambda: None
        self.failures = 0
        self.unsaved: SaveError | None = None
        self._between_iterations = False
        self._due = self._due_by_clock = False
        self._env_steps = 0
        self._saved_iteration = -1
        self._saved_at, self._save_seconds = time.monotonic(), 0.0

    # -- timing
    # ----------------------------------------------------------------------------------------------------------
    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Read which checkpoints the directory holds; say so if a resumed run will not be exactly this one."""
        if trainer.is_global_zero:
            remove_staging(self.dirpath)
            describe_loss = getattr(getattr(trainer, "datamodule", None), "describe_loss", lambda: "")
            if loss := describe_loss():
                print(f"a run resumed from a checkpoint is as good as this one, but not the same: {loss}", flush=True)
        found = filter(None, (BEST_FILE.fullmatch(path.name) for path in self.dirpath.glob("best_*.ckpt")))
        self.best = {match[0]: self.best.get(match[0], float(match[2])) for match in found}
        self._record_best_path()
        if self.best and self.monitor == EVAL_RETURN:
            recall_best_evaluation(trainer, max(self.best.values()))
        self._env_steps, self._saved_iteration = int(pl_module.env_steps), int(pl_module.iterations)
        self._saved_at, self._between_iterations = time.monotonic(), True
        self._due = self._due_by_clock = False

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Mark the state as inconsistent: it cannot be resumed from until the iteration is over."""
        self._between_iterations = False

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Save if a save is due, unless the epoch ends with this iteration."""
        self._between_iterations = True
        every, steps = self.every_env_steps, int(pl_module.env_steps)
        # Multiples, not steps since the last save: extra saves (Ctrl-C, a resume) do not shift the later ones.
        self._due |= every is not None and steps // every > self._env_steps // every
        self._due_by_clock |= self._is_due_by_clock(trainer)
        self._env_steps = steps
        if not trainer.is_last_batch:
            self._save_if_due_or_over(trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Save the evaluated policy if it is among the best."""
        if not trainer.sanity_checking and trainer.state.fn == TrainerFn.FITTING:
            self.keep_if_best(trainer, pl_module)

    def keep_if_best(self, trainer: Trainer, pl_module: Any) -> None:
        """Save the policy if its evaluation is among the best; after a parallel one, the evaluated weights."""
        if self.monitor is None or self.keep == 0:
            return
        value = latest_metrics(trainer).get(self.monitor, math.nan)
        if trainer.strategy.reduce_boolean_decision(self._is_among_best(value), all=False):
            evaluator = getattr(getattr(trainer, "datamodule", None), "evaluator", None)
            with nullcontext() if evaluator is None else evaluator.reported_policy(pl_module):
                self._save_best(trainer, pl_module, value)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Save what became due in the epoch's last iteration."""
        if trainer.is_last_batch:
            self._save_if_due_or_over(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Save at the end of fit, unless that has been done."""
        if self.at_end and self._saved_iteration != pl_module.iterations:
            self._save_last(trainer, pl_module, final=True)

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Save if the state is consistent; the exception is raised again."""
        if isinstance(exception, HardStop | CheckpointError | NonFiniteError) or not self.at_end:
            return
        if (
            trainer.state.fn != TrainerFn.FITTING
            or not self._between_iterations
            or self._saved_iteration == pl_module.iterations
        ):
            return
        if trainer.world_size > 1:
            log.warning("no checkpoint after %s: the other ranks do not know of it; last.ckpt is older", exception)
            return
        try:
            self._save_last(trainer, pl_module, final=True)
        except SaveError as error:
            if isinstance(exception, KeyboardInterrupt):
                self.unsaved = error
            log.error("after %s: %s", type(exception).__name__, error)
        except Exception:  # the cause may break saving as well; only the first error is reported
            log.exception("no checkpoint after %s: last.ckpt is older", type(exception).__name__)

    def _is_due_by_clock(self, trainer: Trainer) -> bool:
        if self.every_seconds is None:
            return False
        waited = time.monotonic() - self._saved_at
        due = waited >= max(self.every_seconds, self._save_seconds / MOST_SAVING)
        return trainer.strategy.reduce_boolean_decision(due, all=False)

    # -- writing
    # ----------------------------------------------------------------------------------------------------------
    def _save_if_due_or_over(self, trainer: Trainer, policy: Any) -> None:
        over = trainer.should_stop and self.at_end
        if self._due or self._due_by_clock or over:
            self._save_last(trainer, policy, final=over)

    def _save_last(self, trainer: Trainer, policy: Any, final: bool = False) -> None:
        """Write last.ckpt and, unless it is due by the clock only, a second name for it.

        Raises:
            SaveError: a `final` one cannot be written.
        """
        named, started = self._due or final, time.monotonic()
        last, step = self.dirpath / "last.ckpt", self.dirpath / f"step_{policy.env_steps:09d}.ckpt"
        self._due, self._due_by_clock = False, False
        if final:
            self._write_or_raise(trainer, policy, last)
        written = final or self._save_or_log(trainer, last)
        self._saved_at = time.monotonic()
        self._save_seconds = self._saved_at - started
        if not written:
            return
        self._saved_iteration = int(policy.iterations)
        self.after_save()
        if named and self.keep > 0 and trainer.is_global_zero:
            with self._keeping_in_order():
                duplicate(last, step)
            self._delete(self._step_files(int(policy.env_steps))[self.keep :])

    def _save_best(self, trainer: Trainer, policy: Any, value: float) -> None:
        name = f"best_{policy.env_steps:09d}_{value:.2f}.ckpt"
        before, self.best = self.best, {**self.best, name: value}
        surplus = self._rank_by_score()[self.keep :]
        for worse in surplus:  # before the write: the file lists the best files after it
            del self.best[worse]
        if not self._save_or_log(trainer, self.dirpath / name):
            self.best = before
        elif trainer.is_global_zero:
            self._delete([self.dirpath / worse for worse in surplus])
        self._record_best_path()

    def _record_best_path(self) -> None:
        self.best_model_path = str(self.dirpath / self._rank_by_score()[0]) if self.best else ""

    def _save_or_log(self, trainer: Trainer, path: Path) -> bool:
        """Write a checkpoint; log a failure, and raise an error after several failures in a row."""
        problem = self._try_save(trainer, path)
        if problem is None:
            self.failures = 0
            return True
        self.failures += 1
        if trainer.is_global_zero:
            log.error(
                "%s could not be written (%s): training continues, the files before it are untouched", path, problem
            )
        if self.failures >= self.max_failures:
            raise SaveError(
                f"{self.failures} checkpoints in a row could not be written to {self.dirpath} ({problem}): "
                f"{self._describe_existing(None)}"
            )
        return False

    def _write_or_raise(self, trainer: Trainer, policy: Any, path: Path) -> None:
        """Write a run's last checkpoint with several attempts; raises `SaveError` if all fail."""
        for wait in LAST_WAITS_S:
            if (problem := self._try_save(trainer, path)) is None:
                return
            if trainer.is_global_zero:
                log.warning("%s could not be written (%s): next attempt in %g s", path, problem, wait)
            time.sleep(wait)
        if (problem := self._try_save(trainer, path)) is not None:
            raise SaveError(
                f"{path} could not be written ({problem}; {len(LAST_WAITS_S) + 1} attempts): "
                f"{self._describe_existing(int(policy.env_steps))}"
            )

    def _try_save(self, trainer: Trainer, path: Path) -> str | None:
        """Write a checkpoint; returns why that failed on any rank, or `None`."""
        problem: OSError | None = None
        try:
            trainer.save_checkpoint(path, weights_only=False)
        except OSError as error:
            problem = error
            trainer.strategy.barrier("Trainer.save_checkpoint")  # the other ranks wait here
        if not trainer.strategy.reduce_boolean_decision(problem is not None, all=False):
            return None
        return "by rank 0" if problem is None else problem.strerror or str(problem)

    def _describe_existing(self, env_steps: int | None) -> str:
        """Describe the newest checkpoint of a run that cannot write another one, and what the user can do."""
        newest = newest_checkpoint(self.dirpath)
        if newest is None:
            return "the run has no checkpoint; free some space there, and start it again"
        file, saved = newest
        lost = "" if env_steps is None else f"what was learned in the last {env_steps - saved} env steps is lost, "
        resume = f"`lightning-rl resume {shlex.quote(str(self.dirpath.parent))}`"
        resume += "" if file.name == "last.ckpt" else f" with --checkpoint {file}"
        return f"{lost}the newest checkpoint is {file} ({saved} env steps); free some space there, then {resume}"

    def _delete(self, paths: list[Path]) -> None:
        for path in paths:
            with self._keeping_in_order():
                path.unlink(missing_ok=True)

    @contextmanager
    def _keeping_in_order(self) -> Iterator[None]:
        """Context in which an error is logged: last.ckpt, which a run needs, is written by then."""
        try:
            yield
        except OSError as error:
            log.error("the files in %s could not be put in order (%s); last.ckpt is written", self.dirpath, error)

    def _step_files(self, env_steps: int) -> list[Path]:
        """Step files up to now, newest first, without later ones of a run that was resumed from an older file."""
        found = [(STEP_FILE.fullmatch(path.name), path) for path in self.dirpath.glob("step_*.ckpt")]
        ages = {path: int(match[1]) for match, path in found if match and int(match[1]) <= env_steps}
        return sorted(ages, key=lambda path: ages[path], reverse=True)

    def _is_among_best(self, value: float) -> bool:
        if not math.isfinite(value) or len(self.best) < self.keep:
            return math.isfinite(value)
        return self._sign * value > self._sign * self.best[self._rank_by_score()[-1]]

    def _rank_by_score(self) -> list[str]:
        """Best files, the best first; of equal ones, the earlier first."""
        return sorted(self.best, key=lambda name: (-self._sign * self.best[name], name))

    # -- state ---------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """The exact values of the best files; the files themselves are found in the directory."""
        return {"best": dict(self.best)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the values of the best files.

        Raises:
            CheckpointError: a name is not one that this callback writes: files of that name would be deleted.
        """
        self.best = {name: float(value) for name, value in state_dict["best"].items()}
        if odd := [name for name in self.best if not BEST_FILE.fullmatch(name)]:
            raise CheckpointError(f"no run gives the best files such names: {odd[:3]}; the checkpoint was changed")
