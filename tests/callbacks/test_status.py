"""status.json: states of running, finished, failed and interrupted runs, always written whole."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from lightning_rl.callbacks import MetricsCallback, RLCheckpoint, StatusCallback, StopCallback
from lightning_rl.run_directory import process_identity
from lightning_rl.run_directory.process_identity import age, this_process
from tests.callbacks.small_run import At, SmallData, SmallPolicy, small_trainer
from tests.edited_runs import status_of
from tests.run_processes import until


def run(tmp_path: Path, *callbacks: Any, reason: str | None = None) -> dict[str, Any]:
    metrics, rule = MetricsCallback(), StopCallback(600)
    status = StatusCallback(tmp_path / "status.json", metrics, rule)
    if reason is not None:
        callbacks = (*callbacks, At(6, lambda trainer: setattr(rule, "reason", reason)))
    trainer = small_trainer(tmp_path, [metrics, rule, *callbacks, status])
    trainer.fit(SmallPolicy(), SmallData(evaluations=[5.0, 4.0]))
    return status_of(tmp_path)


def test_a_run_that_ended_has_its_numbers(tmp_path: Path):
    status = run(tmp_path)
    assert status.pop("seconds") > 0 and 0 <= age(status.pop("heartbeat")) < 60
    evaluations = status.pop("evaluations")
    assert 0 < evaluations.pop("share_of_time") < 1 and evaluations == {"done": 2, "postponed": 0}
    numbers = {"env_steps": 600, "return": 6.0, "evaluation": 4.0, "evaluated_at": 600, "best_return": 5.0}
    numbers |= {"best_checkpoint": None, "estimates": None}
    process = {name: value for name, value in this_process().items() if name != "born"}
    assert status == {"state": "ok", **numbers, "policies": None, "error": None, **process}
    assert (process["pid"], process["host"]) == (os.getpid(), socket.gethostname())


def test_a_run_that_is_killed_after_a_checkpoint_has_its_env_steps(tmp_path: Path):
    """Long before the end of the epoch and the first heartbeat: 600 env steps are one epoch of 6 iterations."""
    metrics, rule, seen = MetricsCallback(), StopCallback(600), []
    checkpoint = RLCheckpoint(tmp_path / "checkpoints", every_env_steps=200)
    status = StatusCallback(tmp_path / "status.json", metrics, rule, checkpoint)
    read = [At(at, lambda trainer: seen.append(status_of(tmp_path)["env_steps"])) for at in (1, 2, 3)]
    small_trainer(tmp_path, [metrics, rule, checkpoint, status, *read]).fit(SmallPolicy(), SmallData())
    assert seen == [0, 0, 200], "at the end of the third iteration, the second one has been saved"


def test_the_status_is_renewed_while_an_iteration_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Iteration 2 waits until a heartbeat has been written since it began; `running` is never written after the end."""
    monkeypatch.setattr(process_identity, "HEARTBEAT_SECONDS", 0.02)
    file, seen = tmp_path / "status.json", []

    def wait(trainer: object) -> None:
        before = file.stat().st_mtime_ns
        seen.append(until(lambda: file.stat().st_mtime_ns > before, 30, lambda: True, lambda: "no heartbeat"))

    before_run = set(threading.enumerate())
    assert run(tmp_path, At(2, wait))["state"] == "ok" and seen == [True]
    assert "heartbeat" not in {thread.name for thread in set(threading.enumerate()) - before_run}


def test_the_status_of_an_interrupted_run_is_interrupted(tmp_path: Path):
    assert run(tmp_path, reason="interrupted")["state"] == "interrupted"


def test_the_status_is_running_from_the_start_and_after_each_epoch(tmp_path: Path):
    seen = []
    run(tmp_path, *(At(k, lambda trainer: seen.append(status_of(tmp_path))) for k in (1, 5)))
    assert [(status["state"], status["env_steps"]) for status in seen] == [("running", 0), ("running", 400)]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("broken\nwith details"), ("failed", "RuntimeError: broken")),
        (KeyboardInterrupt(), ("interrupted", None)),
    ],
)
def test_the_status_of_a_failed_run_has_the_first_line_of_the_error(
    tmp_path: Path, error: BaseException, expected: Any
):
    def breaks(trainer: object) -> None:
        raise error

    with pytest.raises((type(error), SystemExit)):
        run(tmp_path, At(2, breaks))
    status = status_of(tmp_path)
    assert (status["state"], status["error"], status["env_steps"]) == (*expected, 200)


def test_a_status_that_cannot_be_written_does_not_stop_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "status.json").mkdir()
    metrics, rule = MetricsCallback(), StopCallback(200)
    trainer = small_trainer(tmp_path, [metrics, rule, StatusCallback(tmp_path / "status.json", metrics, rule)])
    trainer.fit(SmallPolicy(), SmallData())
    assert rule.reason == "total_env_steps" and "status.json" in caplog.text
