"""What a report reads from run directories, whole, damaged or in progress."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lightning_rl.callbacks import TensorBoardLogger
from lightning_rl.errors import ConfigError
from lightning_rl.reports.run_records import read_run, read_runs
from tests.reports.run_files import rising, write_run


def test_runs_of_a_sweep_come_in_the_order_of_their_numbers_and_once(tmp_path: Path):
    for number in (10, 2, 1):
        write_run(tmp_path / f"{number}_ppo", returns=rising(10))
    runs = read_runs([tmp_path, tmp_path / "2_ppo"])
    assert [run.name for run in runs] == ["1_ppo", "2_ppo", "10_ppo"]


def test_a_row_that_is_being_written_and_cells_without_numbers_are_left_out(tmp_path: Path):
    directory = write_run(tmp_path / "run", returns=rising(10, rows=3), metrics={"train/loss": [1.0, "", "odd"]})
    with (directory / "metrics.csv").open("a") as file:
        file.write("4000,7.5,")
    run = read_run(directory)
    assert run.curves["rollout/ep_rew_mean"].steps.tolist() == [1000, 2000, 3000]
    assert run.curves["train/loss"].values.tolist() == [1.0]
    assert (run.env_steps, run.seconds, run.policy, run.env, run.seed) == (3000, 6.0, "PPO", "CartPole-v1", 0)


def test_nan_is_kept_but_not_drawn(tmp_path: Path):
    run = read_run(write_run(tmp_path / "run", returns=[1.0, float("nan"), 3.0]))
    assert np.isnan(run.curves["rollout/ep_rew_mean"].values[1])
    curve = run.curve("rollout/ep_rew_mean")
    assert curve is not None and curve.steps.tolist() == [1000, 3000]


def test_seconds_at_env_steps_are_those_of_the_run(tmp_path: Path):
    run = read_run(write_run(tmp_path / "run", returns=rising(1), seconds_per_row=3.0))
    seconds = run.seconds_at(np.array([500, 1000, 20_000]))
    assert seconds is not None and seconds.tolist() == [1.5, 3.0, 60.0]


def test_curves_come_from_tensorboard_where_no_csv_has_numbers(tmp_path: Path):
    directory = write_run(tmp_path / "run")
    logger = TensorBoardLogger(directory / "tb")
    for step, value in ((100, 1.0), (200, 2.0), (300, 3.0)):
        logger.log_metrics({"rollout/ep_rew_mean": value}, step)
    logger.save()
    resumed = TensorBoardLogger(directory / "tb")  # goes on from a checkpoint at 200
    resumed.continue_from(200)
    resumed.log_metrics({"rollout/ep_rew_mean": 9.0}, 250)
    resumed.save()
    for content in (None, "", "garbage\n"):
        if content is not None:
            (directory / "metrics.csv").write_text(content)
        curve = read_run(directory).curve("rollout/ep_rew_mean")
        assert curve is not None
        assert (curve.steps.tolist(), curve.values.tolist()) == ([100, 200, 250], [1.0, 2.0, 9.0])


def test_a_cut_event_file_gives_what_is_whole(tmp_path: Path):
    directory = write_run(tmp_path / "run")
    logger = TensorBoardLogger(directory / "tb")
    for step in (100, 200):
        logger.log_metrics({"rollout/ep_rew_mean": 1.0}, step)
        logger.save()
    (file,) = (directory / "tb").glob("events*")
    file.write_bytes(file.read_bytes()[:-7])
    curve = read_run(directory).curve("rollout/ep_rew_mean")
    assert curve is not None and curve.steps.tolist() == [100]


def test_what_cannot_be_reported_is_one_clear_error(tmp_path: Path):
    with pytest.raises(ConfigError, match="directory"):
        read_runs([tmp_path / "nowhere"])
    with pytest.raises(ConfigError, match="below"):
        read_runs([tmp_path])
    write_run(tmp_path / "run", state="failed")
    with pytest.raises(ConfigError, match=r"\(failed\)"):
        read_runs([tmp_path])


def test_reading_imports_nothing_that_a_file_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    write_run(tmp_path / "run", returns=rising(1), policy={"_target_": "evil_module:Policy"}, env="evil_module:Env-v0")
    from lightning_rl.reports.summaries import Task

    (task,) = Task.all_of(read_runs([tmp_path / "run"]))
    assert task.summaries[0].target is None
