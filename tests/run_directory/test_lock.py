"""RunLock: one process at a time trains in a run directory; the lock of a dead process does not count."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lightning_rl.errors import ConfigError, SaveError
from lightning_rl.run_directory import lock
from lightning_rl.run_directory.lock import LOCK_FILE, RunLock, live_owner, refuse_live_run
from lightning_rl.run_directory.process_identity import SILENT_SECONDS, this_process
from lightning_rl.runs.algorithm import Algorithm

HOLDS = """
    import sys, time
    from lightning_rl.run_directory.lock import RunLock
    with RunLock(sys.argv[1]):
        print("locked", flush=True)
        time.sleep(600)
"""


def holder(directory: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock."""
    command = [sys.executable, "-c", textwrap.dedent(HOLDS), str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "locked\n"
    return process


def left_behind(directory: Path, *, silent_for: float = 0.0, **owner: Any) -> Path:
    """A lock as another process would have left it, renewed `silent_for` seconds ago."""
    file = directory / LOCK_FILE
    file.write_text(json.dumps({**this_process(), "since": "2025-01-01T00:00:00+00:00", **owner}))
    moment = file.stat().st_mtime - silent_for
    os.utime(file, (moment, moment))
    return file


def is_held(directory: Path) -> bool:
    return live_owner(directory) is not None


def test_a_second_process_is_refused_while_the_first_lives_and_takes_over_when_it_was_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    process = holder(tmp_path)
    try:
        with pytest.raises(ConfigError, match=rf"process {process.pid} on .* since 20"):
            RunLock(tmp_path).__enter__()
        assert live_owner(tmp_path) is not None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert live_owner(tmp_path) is None
    with caplog.at_level(logging.WARNING), RunLock(tmp_path):
        refused = pytest.raises(ConfigError, match=f"process {os.getpid()} ")
        with refused:
            refuse_live_run(tmp_path)
    assert f"left by process {process.pid}" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_was_not_reaped_yet_holds_no_lock(tmp_path: Path):
    process = holder(tmp_path)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays as a zombie
    assert live_owner(tmp_path) is None
    process.wait()


def test_another_process_of_the_same_number_holds_no_lock(tmp_path: Path):
    left_behind(tmp_path, born="1")
    assert live_owner(tmp_path) is None


@pytest.mark.parametrize("other", [{"host": "elsewhere"}], ids=str)
def test_a_process_of_another_machine_or_container_lives_as_long_as_it_renews_its_lock(
    tmp_path: Path, other: dict[str, str]
):
    """A container's host has this one's name, and its number is that of no process here, or of another one."""
    for pid in (2**22 - 1, os.getpid()):
        for silent_for, alive in ((SILENT_SECONDS - 30, True), (SILENT_SECONDS + 30, False)):
            left_behind(tmp_path, silent_for=silent_for, pid=pid, **other)
            assert is_held(tmp_path) == alive


def test_a_lock_whose_time_lies_in_the_future_is_no_sign_of_life(tmp_path: Path):
    """It would never get old; clocks of two machines may differ by less than that."""
    for ahead, alive in ((30.0, True), (10**8, False)):
        file = left_behind(tmp_path, silent_for=-ahead, host="elsewhere", pid=7)
        assert is_held(tmp_path) == alive
    moment = file.stat().st_mtime
    file.write_bytes(b"")
    os.utime(file, (moment, moment))
    assert not is_held(tmp_path)


def test_a_lock_without_a_namespace_is_checked_by_its_process(tmp_path: Path):
    for pid, alive in ((os.getpid(), True), (2**22 - 1, False)):
        process = {name: this_process()[name] for name in ("host", "born")}
        owner = {**process, "pid": pid, "since": "2025-01-01T00:00:00+00:00"}
        (tmp_path / LOCK_FILE).write_text(json.dumps(owner))
        assert is_held(tmp_path) == alive


def test_the_lock_is_renewed_while_it_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lock.Heartbeat, "__init__", lambda self, beat: (setattr(self, "beat", beat), None)[1])
    monkeypatch.setattr(lock.Heartbeat, "stop", lambda self: None)
    with RunLock(tmp_path) as held:
        os.utime(held.file, (1.0, 1.0))
        held._heartbeat.beat()  # type: ignore[union-attr]
        assert held.file.stat().st_mtime > 1.0


def test_the_lock_is_released_whatever_ends_the_run(tmp_path: Path):
    for error in (ValueError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error), RunLock(tmp_path / "run"):
            raise error
    assert list(tmp_path.iterdir()) == []


def test_directories_created_for_the_lock_alone_are_removed_with_the_lock(tmp_path: Path):
    with RunLock(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b" / LOCK_FILE).is_file()
    assert list(tmp_path.iterdir()) == []
    with RunLock(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "config.yaml").touch()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["config.yaml"]


def test_a_lock_that_was_taken_over_is_not_removed_by_its_former_owner(tmp_path: Path):
    with RunLock(tmp_path):
        left_behind(tmp_path, pid=1, host="elsewhere")
    assert json.loads((tmp_path / LOCK_FILE).read_text())["host"] == "elsewhere"


def test_one_of_many_that_come_at_once_gets_the_lock(tmp_path: Path):
    """Twelve threads meet a stale lock: taking it over twice would let two of them in."""
    left_behind(tmp_path, born="1")
    start, tried = threading.Barrier(12), threading.Barrier(12)

    def come(number: int) -> bool:
        start.wait(30)
        try:
            with RunLock(tmp_path):
                tried.wait(30)
                return True
        except ConfigError:
            tried.wait(30)
            return False

    with ThreadPoolExecutor(12) as threads:
        assert sum(threads.map(come, range(12))) == 1


@pytest.mark.parametrize("taken", ["file", "file/run"])
def test_a_run_directory_that_cannot_be_made_is_refused_in_a_line(tmp_path: Path, taken: str):
    (tmp_path / "file").touch()
    with pytest.raises(SaveError, match="run_dir="):
        RunLock(tmp_path / taken).__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_algorithm_does_not_save_into_the_directory_of_a_live_run(tmp_path: Path):
    algorithm = Algorithm("pg", "cartpole", overrides=[f"run_dir={tmp_path / 'run'}", "workers.fragment_length=8"])
    try:
        with RunLock(tmp_path / "run"), pytest.raises(ConfigError, match="in use"):
            algorithm.save()
        assert algorithm.save().is_file()
    finally:
        algorithm.stop()
