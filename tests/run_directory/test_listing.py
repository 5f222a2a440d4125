"""The states that `list runs` shows, from a run's files and whether its process lives."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lightning_rl.run_directory.listing import runs_below
from lightning_rl.run_directory.lock import LOCK_FILE, RunLock
from lightning_rl.run_directory.process_identity import SILENT_SECONDS, this_process
from lightning_rl.run_directory.status import read_status, write_status

SILENT = (datetime.now(UTC) - timedelta(seconds=SILENT_SECONDS + 60)).isoformat()


def run(directory: Path, state: str | None = "running", **fields: Any) -> Path:
    """A run directory whose status was written by this process, with the changes in `fields`."""
    directory.mkdir(parents=True)
    (directory / "config.yaml").touch()
    if state is not None:
        write_status(directory / "status.json", state, env_steps=5, **{"return": 1.5})
        status = read_status(directory / "status.json")
        (directory / "status.json").write_text(json.dumps({**status, **fields}))
    return directory


def dead_lock(directory: Path) -> None:
    (directory / LOCK_FILE).write_text(json.dumps({**this_process(), "born": "1", "since": "2025"}))


def state(directory: Path) -> str:
    (row,) = runs_below(directory)
    return row["state"]


def test_the_state_of_a_run_is_the_last_in_its_status_file(tmp_path: Path):
    """A run that is being started or resumed has the lock: it is starting."""
    for status in ("ok", "failed", "interrupted"):
        assert state(run(tmp_path / status, status)) == status
        with RunLock(tmp_path / status):
            assert state(tmp_path / status) == "starting"
    with RunLock(run(tmp_path / "new", None)):
        assert state(tmp_path / "new") == "starting"


def test_a_run_that_runs_holds_the_lock_and_gives_signs_of_life(tmp_path: Path):
    for name, fields, expected in (("run", {}, "running"), ("hung", {"heartbeat": SILENT}, "silent")):
        with RunLock(run(tmp_path / name, **fields)):
            assert state(tmp_path / name) == expected


def test_a_run_whose_process_is_gone_is_dead(tmp_path: Path):
    dead_lock(run(tmp_path / "killed", heartbeat=SILENT))
    dead_lock(run(tmp_path / "killed while it started", None))
    run(tmp_path / "number of no process", pid=2**30)
    run(tmp_path / "another machine", host="elsewhere", heartbeat=SILENT)
    assert [row["state"] for row in runs_below(tmp_path)] == ["dead"] * 4


def test_a_run_of_another_machine_runs_while_its_heartbeat_is_young(tmp_path: Path):
    """One in the future is no sign of life."""
    elsewhere: dict[str, Any] = {"host": "elsewhere", "pid": 2**30}
    assert state(run(tmp_path / "run", **elsewhere)) == "running"
    assert state(run(tmp_path / "later", **elsewhere, heartbeat="2999-01-01T00:00:00+00:00")) == "dead"


def test_runs_are_listed_newest_first_from_any_depth_without_directories_inside_runs(tmp_path: Path):
    for age, name in ((300, "a/old"), (10, "b/c/new"), (100, "middle")):
        directory = run(tmp_path / name, "ok")
        (directory / "ray_train").mkdir()
        (directory / "ray_train" / "config.yaml").touch()
        moment = datetime.now().timestamp() - age
        for file in ("config.yaml", "status.json"):
            os.utime(directory / file, (moment, moment))
    rows = runs_below(tmp_path)
    assert [row["directory"] for row in rows] == [str(tmp_path / name) for name in ("b/c/new", "middle", "a/old")]
    assert rows[0]["age"] == pytest.approx(10, abs=5)
    assert (rows[0]["env_steps"], rows[0]["return"], rows[0]["best"]) == (5, 1.5, None)
