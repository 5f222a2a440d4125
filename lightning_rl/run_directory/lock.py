"""A lock that allows one training process per run directory.

RUN_DIR/run.lock names the process. Its modification time is renewed while the process lives, so that other machines,
which cannot inspect the process, see that it lives.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from lightning_rl.errors import ConfigError, SaveError, printable
from lightning_rl.run_directory.atomic import write_atomically
from lightning_rl.run_directory.process_identity import (
    Heartbeat,
    is_alive,
    is_elsewhere,
    now,
    this_process,
)
from lightning_rl.run_directory.regular_files import read_text

__all__ = ["LOCK_FILE", "RunLock", "current_run_directory", "live_owner", "read_lock", "refuse_live_run"]

LOCK_FILE = "run.lock"
MOST_BYTES = 2**16

log = logging.getLogger(__name__)

_held: list[Path] = []  # run directories whose locks this process holds


def current_run_directory() -> Path | None:
    """Directory of the run that this process trains now; `None` if it trains none."""
    return _held[-1] if _held else None


class RunLock:
    """`with RunLock(run_dir): …`: no other process trains in that directory inside the block.

    The lock of a dead process is taken over, with a warning. The directory is created if needed, and removed again if
    it stays empty.

    Args:
        run_dir: the directory of the run.

    Raises:
        ConfigError: a living process holds the lock; names it.
        SaveError: the directory is not writable.
    """

    def __init__(self, run_dir: str | Path) -> None:
        self.file = Path(run_dir).absolute() / LOCK_FILE
        self._owner = {**this_process(), "since": now()}
        self._new_directories = [each for each in self.file.parents if not each.exists()]

    def __enter__(self) -> Self:
        directory = self.file.parent
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with _alone(directory):
                self._take()
        except OSError as error:
            raise SaveError(
                f"run_dir={directory} cannot be written to ({error.strerror or error}): free some space there, or "
                "choose another"
            ) from error
        self._heartbeat = Heartbeat(self._renew)
        _held.append(directory)
        return self

    def __exit__(self, *error: object) -> None:
        self._heartbeat.stop()
        _held.remove(self.file.parent)
        if read_lock(self.file.parent) == self._owner:
            self.file.unlink()
        for directory in self._new_directories:
            with suppress(OSError):  # the directory is not empty
                directory.rmdir()

    def _take(self) -> None:
        refuse_live_run(self.file.parent)
        if os.path.lexists(self.file):
            before = read_lock(self.file.parent)
            who = f"process {before['pid']} on {before['host']}, which is gone" if before else "a process that is gone"
            log.warning("%s was left by %s: it is taken over", self.file, printable(who))
        write_atomically(self.file, json.dumps(self._owner).encode(), durable=False)

    def _renew(self) -> None:
        with suppress(OSError):  # the file was removed, or its file system is gone
            os.utime(self.file, follow_symlinks=False)


def live_owner(run_dir: Path) -> dict[str, Any] | None:
    """The process that trains in the directory now: pid, host, since; `None` if there is none."""
    owner = read_lock(run_dir)
    if owner is None:
        return None
    with suppress(OSError):  # the process has just removed its lock
        return owner if is_alive(owner, time.time() - (run_dir / LOCK_FILE).lstat().st_mtime) else None
    return None


def refuse_live_run(run_dir: Path) -> None:
    """Raise an error if another process, or another part of this one, trains in the run directory.

    Raises:
        ConfigError: names process and machine.
    """
    owner = live_owner(run_dir)
    if owner is None:
        return
    pid, host, since = owner["pid"], printable(str(owner["host"])), printable(str(owner["since"]))
    how = "in its own container or machine" if is_elsewhere(owner) else f"`kill {pid}`"
    raise ConfigError(
        f"{run_dir} is in use: process {pid} on {host} trains there since {since}; wait until it ends, or stop it "
        f"({how}; SIGTERM lets it save a checkpoint)"
    )


def read_lock(run_dir: Path) -> dict[str, Any] | None:
    """The content of a run directory's lock, also of a dead process; `None` if it is missing or damaged.

    The pid is checked to be a number above 0, because messages show it as part of a command.
    """
    try:
        found = json.loads(read_text(run_dir / LOCK_FILE, most=MOST_BYTES))
    except (OSError, RecursionError, ValueError):
        return None
    if not isinstance(found, dict) or not {"pid", "host", "since"} <= found.keys():
        return None
    return found if type(found["pid"]) is int and found["pid"] > 0 else None


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Context that excludes other processes from a directory; without effect if its file system has no locks."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
