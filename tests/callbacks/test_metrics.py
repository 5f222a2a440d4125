"""MetricsCallback: rows by env steps, under registered names, with evaluations beside the iteration before them."""

from __future__ import annotations

import os
import signal
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
from tests.refusals import not_refused
from tests.run_processes import Fork


def test_a_row_per_iteration_at_env_steps_in_both_files(tmp_path: Path):
    """Starts at 2^24 − 100: the second iteration ends above what float32 can count.

    400 divides 2^24 − 16 and 2^24 + 384.
    """
    start = 2**24 - 100
    callbacks = [MetricsCallback(), StopCallback(start + 6 * STEPS)]
    trainer = small_trainer(tmp_path, callbacks, in_both_files(tmp_path))
    trainer.fit(SmallPolicy(start=start), SmallData(evaluations=[5.0]))
    expected = [start + STEPS * (k + 1) for k in range(6)]
    assert [step for step, _ in curve(tmp_path / "tb", "train/loss")] == expected
    table = csv_rows(tmp_path / "metrics.csv")
    assert [int(row["env_steps"]) for row in table] == expected
    assert [row["eval/ep_rew_mean"] for row in table] == ["5.0", "", "", "", "5.0", "5.0"]
    assert set(table[0]) - {"env_steps"} <= set(METRICS)
    assert [float(row["time/iterations"]) for row in table] == [1, 2, 3, 4, 5, 6]
    assert not any(row["train/loss"] == "" for row in table)


def in_both_files(directory: Path) -> list[Any]:
    return [TensorBoardLogger(directory / "tb"), CSVLogger(directory / "metrics.csv")]


def fit(directory: Path, *callbacks: Any, logger: Any = False, resume: Path | None = None, **options: Any) -> Any:
    """Train with evaluations that return 5; the Trainer."""
    trainer = small_trainer(directory, callbacks, logger, **options)
    trainer.fit(SmallPolicy(), SmallData(evaluations=[5.0]), ckpt_path=resume and str(resume))
    return trainer


def test_a_resumed_run_has_the_curves_of_an_uninterrupted_one(tmp_path: Path):
    """Killed after 7 iterations with the last checkpoint at 5, then resumed to 9."""
    for rule, resume in ((At(7, stop), None), (StopCallback(9 * STEPS), tmp_path / "last.ckpt")):
        checkpoint = RLCheckpoint(tmp_path, every_env_steps=5 * STEPS, every_seconds=None, at_end=False)
        fit(tmp_path, MetricsCallback(), rule, checkpoint, logger=in_both_files(tmp_path), resume=resume)
    expected = [STEPS * (k + 1) for k in range(9)]
    assert [step for step, _ in curve(tmp_path / "tb", "train/loss")] == expected
    assert [int(row["env_steps"]) for row in csv_rows(tmp_path / "metrics.csv")] == expected
    assert [step for step, _ in curve(tmp_path / "tb", "eval/ep_rew_mean")] == [400, 800, 900]


def test_a_killed_run_has_all_rows_up_to_its_checkpoint_in_both_files(tmp_path: Path):
    """Epochs of 4, a checkpoint in the middle of the second one, at 600, and kill -9 in iteration 8; resumed to 9."""

    def run() -> None:
        kill = At(7, lambda trainer: os.kill(os.getpid(), signal.SIGKILL), "on_train_batch_start")
        checkpoint = RLCheckpoint(tmp_path, every_env_steps=6 * STEPS)
        fit(tmp_path, MetricsCallback(), checkpoint, kill, logger=in_both_files(tmp_path))

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
    newest: list[float] = []
    tables, third = [], tmp_path / "whole" / "step_000000300.ckpt"
    for directory, resume in ((tmp_path / "whole", None), (tmp_path / "again", third)):
        seen = At(7, lambda trainer: newest.append(latest_metrics(trainer)["rollout/ep_rew_mean"]))
        checkpoint = RLCheckpoint(directory, every_env_steps=300, every_seconds=None, keep=9)
        callbacks = (MetricsCallback(every_env_steps=500), seen, StopCallback(1000), checkpoint)
        fit(directory, *callbacks, logger=CSVLogger(directory / "metrics.csv"), resume=resume)
        tables.append([(row["env_steps"], row["train/loss"]) for row in csv_rows(directory / "metrics.csv")])
    assert newest == [7.0, 7.0] and tables[0][2:] == tables[1]
    assert [step for step, _ in tables[0]] == ["100", "200", "400", "500", "800", "1000"]


def test_time_goes_on_and_the_best_return_is_kept_across_a_resume(tmp_path: Path):
    metrics, again = MetricsCallback(), MetricsCallback()
    for callback, total, resume in ((metrics, 4, None), (again, 8, str(tmp_path / "last.ckpt"))):
        trainer = small_trainer(tmp_path, [callback, StopCallback(total * STEPS), RLCheckpoint(tmp_path)])
        trainer.fit(SmallPolicy(), SmallData(evaluations=[9.0, 1.0]), ckpt_path=resume)
    assert metrics.best_return == again.best_return == 9.0 and again.latest["eval/ep_rew_mean"] == 1.0
    assert again.seconds > metrics.latest["time/total_s"]


def test_without_evaluation_the_best_return_is_the_window_s(tmp_path: Path):
    metrics = MetricsCallback()
    fit(tmp_path, metrics, StopCallback(3 * STEPS), limit_val_batches=0)
    assert metrics.best_return == 3.0


def test_on_train_result_may_add_numbers_that_are_logged_and_watched(tmp_path: Path):
    class Adds(RLCallback):
        def on_train_result(self, *, trainer: Any, policy: Any, result: dict[str, float]) -> None:
            result["custom/double"] = np.float64(2.0 * result["rollout/ep_rew_mean"])

    trainer = fit(tmp_path, MetricsCallback(), Adds(), At(2, stop), logger=CSVLogger(tmp_path / "metrics.csv"))
    assert [row["custom/double"] for row in csv_rows(tmp_path / "metrics.csv")] == ["2.0", "4.0"]
    assert latest_metrics(trainer)["custom/double"] == 4.0
    assert type(latest_metrics(trainer)["custom/double"]) is float  # a numpy number could not go into a checkpoint


def test_fit_called_again_goes_on_in_the_same_files(tmp_path: Path):
    """As `Algorithm.train()` does: one more epoch per call."""
    policy, data = SmallPolicy(), SmallData(every_env_steps=STEPS)
    trainer = small_trainer(tmp_path, [MetricsCallback()], in_both_files(tmp_path), max_epochs=1)
    for call in range(3):
        trainer.fit_loop.max_epochs = call + 1
        trainer.fit(policy, data)
    assert policy.iterations == 3
    assert [row["env_steps"] for row in csv_rows(tmp_path / "metrics.csv")] == ["100", "200", "300"]
    assert [step for step, _ in curve(tmp_path / "tb", "train/loss")] == [100, 200, 300]


def test_an_unknown_metric_is_refused_with_the_nearest_name():
    cases = [
        ("rollout/ep_rew_maen", r"stop.metric='rollout/ep_rew_maen'.*/ep_rew_mean'"),
        ("train/los", r"stop.metric='train/los'.*/loss'"),
        ("ep_rew_mean", r"stop.metric='ep_rew_mean'.*/ep_rew_mean'"),
    ]
    assert not_refused(lambda name: check_metric("stop.metric", name), cases) == []


def test_resident_memory_is_that_of_a_python_process():
    assert 20 < resident_mb() < 100_000


def test_a_user_metric_can_be_registered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lightning_rl.callbacks.metric_names.METRICS", dict(METRICS))
    register_metric("custom/double", "twice the return")
    check_metric("stop.metric", "custom/double")
    check_metric("stop.metric", "train/model/auxiliary")  # what a custom model's metrics() returns
    with pytest.raises(ConfigError, match="custom/nogroup"):
        register_metric("nogroup", "")
