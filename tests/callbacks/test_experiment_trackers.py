"""Loggers for Weights & Biases and MLflow, on the real packages and without a network."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lightning_utilities.core.imports import RequirementCache

from lightning_rl.cli import main
from tests.callbacks.log_files import csv_rows
from tests.trained_runs import train

SHORT = ("policy=ppo", "env=cartpole", "experiment=none", "total_env_steps=300")
BLOCK = 2**15
SMALL = ("workers.fragment_length=16", "policy.minibatches=2", "report_every_env_steps=1")


@pytest.fixture(autouse=True)
def without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def tracked_by_mlflow(directory: Path) -> tuple[Any, Any]:
    """The client of a store and its only run."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{directory / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("lightning_rl")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    return client, found


def records(file: Path) -> Iterator[bytes]:
    """Records of a file in LevelDB's log format, as wandb writes it: blocks of 32 KiB, after 7 bytes of its own."""
    content, place, record = file.read_bytes(), 7, b""
    while place + 7 <= len(content):
        if BLOCK - place % BLOCK < 7:  # no room for a header: padding
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def tracked_by_wandb(directory: Path) -> list[tuple[str, dict[int, float]]]:
    """Of each process that wrote: the run's id, and returns by environment step."""
    from wandb.proto import wandb_internal_pb2

    found = []
    for file in sorted(directory.glob("wandb/offline-run-*/*.wandb")):
        curve, run_id = {}, ""
        for data in records(file):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "run":
                run_id = record.run.run_id
            elif record.WhichOneof("record_type") == "history":
                row = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                if "rollout/ep_rew_mean" in row:
                    curve[int(row["trainer/global_step"])] = float(row["rollout/ep_rew_mean"])
        found.append((run_id, curve))
    return found


def returns_in(directory: Path) -> dict[int, float]:
    """Returns by environment step in metrics.csv."""
    rows = csv_rows(directory / "metrics.csv")
    return {int(row["env_steps"]): float(row["rollout/ep_rew_mean"]) for row in rows if row["rollout/ep_rew_mean"]}


def test_mlflow_has_the_curve_of_metrics_csv_and_a_resumed_run_continues_it(tmp_path: Path):
    pytest.importorskip("mlflow")
    train(Path("run"), *SHORT, *SMALL, "logger=mlflow")
    _, first = tracked_by_mlflow(tmp_path / "run")
    assert (first.info.run_name, first.info.status) == ("run", "FINISHED")
    assert (first.data.params["policy.gamma"], first.data.params["total_env_steps"]) == ("0.99", "300")
    assert main(["resume", "run", "total_env_steps=600"]) == 0
    client, found = tracked_by_mlflow(tmp_path / "run")
    assert found.info.run_id == first.info.run_id and found.info.status == "FINISHED"
    assert found.data.tags["changed/total_env_steps"] == "600"
    history = client.get_metric_history(found.info.run_id, "rollout/ep_rew_mean")
    assert {each.step: each.value for each in history} == pytest.approx(returns_in(tmp_path / "run"))
    assert max(each.step for each in history) >= 600 and len(history) == len(returns_in(tmp_path / "run"))
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_mlflow_sends_to_the_store_that_its_variable_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    train(Path("run"), *SHORT, *SMALL, "logger=mlflow")
    _, found = tracked_by_mlflow(tmp_path)
    assert found.info.run_name == "run" and not (tmp_path / "run" / "mlflow.db").exists()
    assert str(tmp_path / "mlflow.db") not in (tmp_path / "run" / "config.yaml").read_text()


def test_wandb_has_the_curve_of_metrics_csv_and_a_resumed_run_continues_it(tmp_path: Path):
    pytest.importorskip("wandb")
    given = ("logger=wandb", "logger.wandb.offline=true")
    train(Path("run"), *SHORT, *SMALL, *given)
    before = returns_in(tmp_path / "run")
    train(Path("other"), *SHORT, *SMALL, *given, "seed=1")  # in the same process
    assert main(["resume", "run", "total_env_steps=600"]) == 0
    import wandb

    wandb.finish()
    (first, curve), (again, later) = tracked_by_wandb(tmp_path / "run")
    ((other, other_curve),) = tracked_by_wandb(tmp_path / "other")
    assert first == again != other and (tmp_path / "run" / "wandb.id").read_text().strip() == first
    assert curve == pytest.approx(before)
    assert {**curve, **later} == pytest.approx(returns_in(tmp_path / "run")) and min(later) > max(curve)
    assert other_curve == pytest.approx(returns_in(tmp_path / "other"))
    assert {path.name for path in tmp_path.iterdir()} == {"run", "other"}


@pytest.mark.parametrize(("name", "flag"), [("wandb", "_WANDB_AVAILABLE"), ("mlflow", "_MLFLOW_AVAILABLE")])
def test_without_its_package_a_logger_names_the_command_that_installs_it(
    name: str, flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(f"lightning.pytorch.loggers.{name}.{flag}", RequirementCache(f"{name}>=99999"))
    assert main(["train", *SHORT, *SMALL, f"logger={name}", "run_dir=run"]) == 2
    error = capfd.readouterr().err
    assert error.startswith(f"error: logger.{name} needs a package that is not installed: ")
    assert f"pip install -U '{name}" in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
