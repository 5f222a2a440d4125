"""CSVLogger and TensorBoardLogger, read back from disk: exact steps, all columns, one curve after a resume."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from lightning_rl.callbacks import CSVLogger, TensorBoardLogger
from tests.callbacks.log_files import csv_rows, curve, events_of


def log(logger: Any, *rows: tuple[int, dict[str, float]]) -> None:
    """Log the rows and save."""
    for step, metrics in rows:
        logger.log_metrics(metrics, step=step)
    logger.save()


def table(logger: CSVLogger, *columns: str) -> list[tuple[str, ...]]:
    return [tuple(row[name] for name in ("env_steps", *columns)) for row in csv_rows(logger.path)]


def test_csv_has_a_row_per_step_and_the_union_of_all_columns(tmp_path: Path):
    """In full precision; an evaluation joins a row that was saved before, with known columns and new ones."""
    logger = CSVLogger(tmp_path / "metrics.csv")
    for step in (100, 16_777_217):
        log(logger, (step, {"train/loss": 0.1 + 0.2}))
        log(logger, (step, {"eval/ep_rew_mean": 7.0}))
    log(logger, (20_000_000, {"train/loss": 0.5}))
    expected = [("100", "0.30000000000000004", "7.0"), ("16777217", "0.30000000000000004", "7.0")]
    assert table(logger, "train/loss", "eval/ep_rew_mean") == [*expected, ("20000000", "0.5", "")]


def test_another_process_continues_the_csv_without_unsaved_rows(tmp_path: Path):
    """Rows 100…400 of a killed run, the last one torn; resumed from 200: one row per step, no gap."""
    first, second = CSVLogger(tmp_path / "metrics.csv"), CSVLogger(tmp_path / "metrics.csv")
    log(first, *((step, {"train/loss": float(step), "only/before": 1.0}) for step in (100, 200, 300)))
    with first.path.open("a") as file:
        file.write("400,4")
    second.continue_from(200)
    log(second, (300, {"train/loss": -3.0}))
    expected = [("100", "100.0", "1.0"), ("200", "200.0", "1.0"), ("300", "-3.0", "")]
    assert table(second, "train/loss", "only/before") == expected
    fresh = CSVLogger(tmp_path / "metrics.csv")  # of another run
    fresh.continue_from(0)
    assert table(fresh) == []


def full(*args: Any, **kwargs: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_csv_keeps_its_rows_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    logger = CSVLogger(tmp_path / "metrics.csv")
    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr("lightning_rl.callbacks.loggers.write_atomically", full)
        log(logger, (100, {"train/loss": 1.0}))
    assert "No space left" in caplog.text
    log(logger, (200, {"train/loss": 2.0}))
    assert table(logger, "train/loss") == [("100", "1.0"), ("200", "2.0")]


def test_tensorboard_steps_are_exact_above_2_to_the_24(tmp_path: Path):
    """float32 would show 16777216 and 5000000000 + something else."""
    logger = TensorBoardLogger(tmp_path / "tb")
    log(logger, *((step, {"train/loss": 0.5, "time/fps": 3.0}) for step in (16_777_217, 5_000_000_001)))
    assert curve(tmp_path / "tb", "train/loss") == [(16_777_217, 0.5), (5_000_000_001, 0.5)]
    assert curve(tmp_path / "tb", "time/fps") == [(16_777_217, 3.0), (5_000_000_001, 3.0)]


def test_event_files_are_read_in_the_order_of_their_beginnings(tmp_path: Path):
    """TensorBoard sorts them by name, and in the names of one second the count 10 comes before 9."""
    begun = [TensorBoardLogger(tmp_path / "tb") for _ in range(2)]
    for logger in begun:
        log(logger, (1, {"loss": 0.0}))
    seconds = [int(Path(logger.experiment.file_writer.event_writer._file_name).name.split(".")[3]) for logger in begun]
    assert seconds[0] < seconds[1]


def test_tensorboard_curves_are_continued_and_not_doubled(tmp_path: Path):
    first, second = TensorBoardLogger(tmp_path / "tb"), TensorBoardLogger(tmp_path / "tb")
    log(first, *((step, {"train/loss": float(step)}) for step in (100, 200, 300)))
    first.finalize("failed")
    second.continue_from(200)
    log(second, (300, {"train/loss": -3.0}))
    assert curve(tmp_path / "tb", "train/loss") == [(100, 100.0), (200, 200.0), (300, -3.0)]


def test_finalize_between_two_fits_opens_no_second_file(tmp_path: Path):
    logger = TensorBoardLogger(tmp_path / "tb")
    for step in (100, 200):
        logger.continue_from(step - 100)
        logger.log_metrics({"train/loss": 1.0}, step=step)
        logger.finalize("success")
    assert len(list((tmp_path / "tb").iterdir())) == 1
    assert curve(tmp_path / "tb", "train/loss") == [(100, 1.0), (200, 1.0)]


def test_the_hparams_tab_has_the_config_and_the_evaluation_as_hp_metric(tmp_path: Path):
    from tensorboard.plugins.hparams import plugin_data_pb2

    logger = TensorBoardLogger(tmp_path / "tb")
    logger.log_hyperparams({"policy": {"lr": 0.001, "model": None}, "seed": 3})
    logger.log_metrics({"eval/ep_rew_mean": 21.0}, step=100)
    logger.finalize("success")
    events = events_of(tmp_path / "tb", "scalars")
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    hparams = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    assert (hparams["policy.lr"].number_value, hparams["seed"].number_value) == (0.001, 3)
    experiment = events.SummaryMetadata("_hparams_/experiment").plugin_data.content
    metrics = plugin_data_pb2.HParamsPluginData.FromString(experiment).experiment.metric_infos
    assert [metric.name.tag for metric in metrics] == ["hp_metric", "rollout/ep_rew_mean"]
    assert curve(tmp_path / "tb", "hp_metric") == [(100, 21.0)]  # no made-up first point


def test_tensorboard_goes_silent_when_its_files_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    logger = TensorBoardLogger(tmp_path / "tb")
    monkeypatch.setattr(logger.experiment._get_file_writer(), "add_event", full)
    with caplog.at_level(logging.ERROR):
        for step in (100, 200):
            log(logger, (step, {"train/loss": 1.0}))
    assert caplog.text.count("training continues without them") == 1
