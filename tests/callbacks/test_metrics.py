"""MetricsCallback: rows by env steps, under registered names, with evaluations beside the iteration before them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_rl.callbacks import CSVLogger, MetricsCallback, RLCallback, RLCheckpoint, StopCallback, TensorBoardLogger
from lightning_rl.callbacks.metric_names import METRICS, check_metric, register_metric
from lightning_rl.callbacks.metrics import latest_metrics
from lightning_rl.errors import ConfigError
from lightning_rl.process_memory import resident_mb
from tests.callbacks.log_files import csv_rows, curve
from tests.callbacks.small_run import STEPS, At, SmallData, SmallPolicy, small_trainer, stop
from tests.run_processes import Fork


def test_a_row_per_iteration_at_env_steps_in_both_files(tmp_path: Path):
    """Starts at 2^24 − 100: the second iteration ends above what float32 can count.

    400 divides 2^24 − 16 and 2^24 + 384.
    """
    start = 2**24 - 100
    loggers = [TensorBoardLogger(tmp_path / "tb"), CSVLogger(tmp_path / "metrics.csv")]
    callbacks = [MetricsCallback(), StopCallback(start + 6 * STEPS)]
    small_trainer(tmp_path, callbacks, loggers).fit(SmallPolicy(start=start), SmallData(evaluations=[5.0]))
    expected = [start + STEPS * (k + 1) for k in range(6)]
    assert [step for step, _ in curve(tmp_path / "tb", "train/loss")] == expected
    table = csv_rows(tmp_path / "metrics.csv")
    assert [int(row["env_steps"]) for row in table] == expected
    assert [row["eval/ep_rew_mean"] for row in table] == ["5.0", "", "", "", "5.0", "5.0"]
    assert set(table[0]) - {"env_steps"} <= set(METRICS)
    assert [float(row["time/iterations"]) for row in table] == [1, 2, 3, 4, 5, 6]
    assert not any(row["train/loss"] == "" for row in table)


def test_a_resumed_run_has_the_curves_of_an_uninterrupted_one(tmp_path: Path):
    """Killed after 7 iterations with the last checkpoint at 5, then resumed to 9."""

    def parts(total: int | None) -> tuple[list[Any], list[Any]]:
        loggers = [TensorBoardLogger(tmp_path / "tb"), CSVLogger(tmp_path / "metrics.csv")]
        checkpoint = RLCheckpoint(tmp_path, every_env_steps=5 * STEPS, every_seconds=None, at_end=False)
        rules = [StopCallback(total * STEPS)] if total else [At(7, stop)]
        return [MetricsCallback(), *rules, checkpoint], loggers

    callbacks, loggers = parts(None)
    small_trainer(tmp_path, callbacks, loggers).fit(SmallPolicy(), SmallData(evaluations=[5.0]))
    callbacks, loggers = parts(9)
    trainer = small_trainer(tmp_path, callbacks, loggers)
    trainer.fit(SmallPolicy(), SmallData(evaluations=[5.0]), ckpt_path=str(tmp_path / "last.ckpt"))
    expected = [STEPS * (k + 1) for k in range(9)]
    assert [step for step, _ in curve(tmp_path / "tb", "train/loss")] == expected
    assert [int(row["env_steps"]) for row in csv_rows(tmp_path / "metrics.csv")] == expected
    assert [step for step, _ in curve(tmp_path / "tb", "eval/ep_rew_mean")] == [400, 800, 900]


def test_a_killed_run_has_all_rows_up_to_its_checkpoint_in_both_files(tmp_path: Path):
    """Epochs of 4, a checkpoint in the middle of the second one, at 600, and kill -9 in iteration 8; resumed to 9."""

    def run() -> None:
        kill = At(7, lambda trainer: os.kill(os.getpid(), signal.SIGKILL), "on_train_batch_start")
        callbacks = [MetricsCallback(), RLCheckpoint(tmp_path, every_env_steps=6 * STEPS), kill]
        loggers = [TensorBoardLogger(tmp_path / "tb"), CSVLogger(tmp_path / "metrics.csv")]
        small_trainer(tmp_path, callbacks, loggers).fit(SmallPolicy(), SmallData())

    with Fork(run, tmp_path / "log.txt") as process:
        assert process.wait() == -signal.SIGKILL, process.text
    steps = [int(row["env_steps"]) for row in csv_rows(tmp_path / "metrics.csv")]
    assert steps == [STEPS * (k + 1) for k in range(6)]
    assert [step for step, _ in curve(tmp_path / "tb", "train/loss")] == steps
    (file,) = (tmp_path / "tb").iterdir()
    file.rename(file.with_name("events.out.tfevents.1"))  # TensorBoard reads its files in the order of their seconds
    loggers = [TensorBoardLogger(tmp_path / "tb"), CSVLogger(tmp_path / "metrics.csv")]
    trainer = small_trainer(tmp_path, [MetricsCallback(), StopCallback(9 * STEPS)], loggers)
    trainer.fit(SmallPolicy(), SmallData(), ckpt_path=str(tmp_path / "last.ckpt"))
    steps = [STEPS * (k + 1) for k in range(9)]
    assert [int(row["env_steps"]) for row in csv_rows(tmp_path / "metrics.csv")] == steps
    assert [step for step, _ in curve(tmp_path / "tb", "train/loss")] == steps


def test_rows_come_at_multiples_of_env_steps_before_evaluations_and_at_the_end(tmp_path: Path):
    """Iterations of 100: the first, the second; past 250, 500, 750, 1,000; evaluations at 400, 800; the end at 1,100.

    A row has the mean of what was learned since the row before, the newest return and an evaluation of its own step.
    """
    every, few = tmp_path / "every.csv", tmp_path / "few.csv"
    for path, steps in ((every, 1), (few, 250)):
        callbacks = [MetricsCallback(every_env_steps=steps), StopCallback(1100)]
        small_trainer(tmp_path, callbacks, CSVLogger(path)).fit(SmallPolicy(), SmallData(evaluations=[5.0]))
    losses = [float(row["train/loss"]) for row in csv_rows(every)]
    assert len(losses) == 11
    table, last = csv_rows(few), 0
    assert [int(row["env_steps"]) for row in table] == [100, 200, 300, 400, 500, 800, 1000, 1100]
    for row in table:
        iteration = int(row["env_steps"]) // STEPS
        assert float(row["train/loss"]) == pytest.approx(np.mean(losses[last:iteration]))
        assert float(row["rollout/ep_rew_mean"]) == iteration
        last = iteration
    assert [row["env_steps"] for row in table if row["eval/ep_rew_mean"]] == ["400", "800", "1100"]


def test_rules_see_every_iteration_and_a_resumed_row_has_all_its_iterations(tmp_path: Path):
    """A checkpoint after iteration 3, the first of two that a row is of."""

    def fit(directory: Path, total: int, resume: bool = False) -> None:
        metrics, logger = MetricsCallback(every_env_steps=500), CSVLogger(directory / "metrics.csv")
        seen = At(7, lambda trainer: newest.append(latest_metrics(trainer)["rollout/ep_rew_mean"]))
        checkpoint = RLCheckpoint(directory, every_env_steps=300, every_seconds=None, keep=9)
        trainer = small_trainer(directory, [metrics, seen, StopCallback(total), checkpoint], logger)
        file = str(tmp_path / "whole" / "step_000000300.ckpt") if resume else None
        trainer.fit(SmallPolicy(), SmallData(), ckpt_path=file)

    newest: list[float] = []
    fit(tmp_path / "whole", 1000)
    fit(tmp_path / "again", 1000, resume=True)
    assert newest == [7.0, 7.0]
    tables = [[(row["env_steps"], row["train/loss"]) for row in csv_rows(tmp_path / name / "metrics.csv")]
              for name in ("whole", "again")]  # fmt: skip
    assert tables[0][2:] == tables[1]
    assert [step for step, _ in tables[0]] == ["100", "200", "400", "500", "800", "1000"]


def test_time_goes_on_and_the_best_return_is_kept_across_a_resume(tmp_path: Path):
    metrics = MetricsCallback()
    checkpoint = RLCheckpoint(tmp_path, every_seconds=None)
    trainer = small_trainer(tmp_path, [metrics, StopCallback(4 * STEPS), checkpoint])
    trainer.fit(SmallPolicy(), SmallData(evaluations=[9.0, 1.0]))
    assert metrics.best_return == 9.0
    again = MetricsCallback()
    trainer = small_trainer(tmp_path, [again, StopCallback(8 * STEPS), RLCheckpoint(tmp_path)])
    trainer.fit(SmallPolicy(), SmallData(evaluations=[9.0, 1.0]), ckpt_path=str(tmp_path / "last.ckpt"))
    assert again.best_return == 9.0
    assert again.latest["eval/ep_rew_mean"] == 1.0
    assert again.seconds > metrics.latest["time/total_s"]


def test_without_evaluation_the_best_return_is_the_window_s(tmp_path: Path):
    metrics = MetricsCallback()
    small_trainer(tmp_path, [metrics, StopCallback(3 * STEPS)], limit_val_batches=0).fit(SmallPolicy(), SmallData())
    assert metrics.best_return == 3.0


def test_on_train_result_may_add_numbers_that_are_logged_and_watched(tmp_path: Path):
    class Adds(RLCallback):
        def on_train_result(self, *, trainer: Any, policy: Any, result: dict[str, float]) -> None:
            result["custom/double"] = np.float64(2.0 * result["rollout/ep_rew_mean"])

    trainer = small_trainer(tmp_path, [MetricsCallback(), Adds(), At(2, stop)], CSVLogger(tmp_path / "metrics.csv"))
    trainer.fit(SmallPolicy(), SmallData())
    assert [row["custom/double"] for row in csv_rows(tmp_path / "metrics.csv")] == ["2.0", "4.0"]
    assert latest_metrics(trainer)["custom/double"] == 4.0
    assert type(latest_metrics(trainer)["custom/double"]) is float  # a numpy number could not go into a checkpoint


def test_fit_called_again_goes_on_in_the_same_files(tmp_path: Path):
    """As `Algorithm.train()` does: one more epoch per call."""
    logger, policy, data = CSVLogger(tmp_path / "metrics.csv"), SmallPolicy(), SmallData(every_env_steps=STEPS)
    trainer = small_trainer(tmp_path, [MetricsCallback()], [logger, TensorBoardLogger(tmp_path / "tb")], max_epochs=1)
    for call in range(3):
        trainer.fit_loop.max_epochs = call + 1
        trainer.fit(policy, data)
    assert policy.iterations == 3
    assert [row["env_steps"] for row in csv_rows(tmp_path / "metrics.csv")] == ["100", "200", "300"]
    assert [step for step, _ in curve(tmp_path / "tb", "train/loss")] == [100, 200, 300]


def test_the_cost_of_an_iteration_s_metrics_is_below_a_millisecond(tmp_path: Path):
    """25 scalars into TensorBoard and CSV; the best of five rounds, for the machine may be busy."""
    metrics, policy, data = MetricsCallback(), SmallPolicy(), SmallData()
    loggers = [TensorBoardLogger(tmp_path / "tb"), CSVLogger(tmp_path / "metrics.csv")]
    trainer = small_trainer(tmp_path, [metrics, At(1, stop)], loggers)
    trainer.fit(policy, data)
    policy.iteration_metrics = {f"m{index}": 0.5 for index in range(19)}
    rounds = []
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(50):
            policy.env_steps += STEPS
            metrics.on_train_batch_end(trainer, policy, None, None, 0)
        rounds.append((time.perf_counter() - started) / 50)
    assert min(rounds) < 1e-3


def test_resident_memory_is_that_of_a_python_process():
    assert 20 < resident_mb() < 100_000


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("rollout/ep_rew_maen", "rollout/ep_rew_mean"),
        ("train/los", "train/loss"),
        ("ep_rew_mean", "rollout/ep_rew_mean"),
    ],
)
def test_an_unknown_metric_is_refused_with_the_nearest_name(name: str, nearest: str):
    with pytest.raises(ConfigError, match=rf"stop.metric='{name}'.*/{nearest.split('/')[1]}'"):
        check_metric("stop.metric", name)


def test_a_user_metric_can_be_registered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lightning_rl.callbacks.metric_names.METRICS", dict(METRICS))
    register_metric("custom/double", "twice the return")
    check_metric("stop.metric", "custom/double")
    check_metric("stop.metric", "train/model/auxiliary")  # what a custom model's metrics() returns
    with pytest.raises(ConfigError, match="custom/nogroup"):
        register_metric("nogroup", "")
