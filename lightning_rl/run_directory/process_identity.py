"""Identifies the process that works in a run directory, and finds out whether it is still alive."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = [
    "HEARTBEAT_SECONDS",
    "SILENT_SECONDS",
    "Heartbeat",
    "age",
    "is_alive",
    "is_elsewhere",
    "is_recent",
    "now",
    "this_process",
]

HEARTBEAT_SECONDS = 15.0
SILENT_SECONDS = 120.0  # a process of another machine or container counts as dead after so long without a heartbeat


def now() -> str:
    """The current time as in a run's files: "2025-06-30T12:00:00+00:00"."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def age(moment: Any) -> float:
    """Seconds since a time that `now` gave; infinite for anything else."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
    except (TypeError, ValueError):
        return float("inf")


def is_recent(silent_for: float) -> bool:
    """Whether a heartbeat was less than SILENT_SECONDS ago.

    Clocks of two machines differ; a time that lies further in the future is not a heartbeat, and would never get old.
    """
    return abs(silent_for) < SILENT_SECONDS


def this_process() -> dict[str, Any]:
    """Identity of this process: pid, start time and host.

    `born` distinguishes it from a later process with the same pid; it is `None` without /proc.
    """
    return {"pid": os.getpid(), "born": _birth(os.getpid()), "host": socket.gethostname()}


def is_elsewhere(owner: Mapping[str, Any]) -> bool:
    """Whether `this_process` described a process of another machine or container."""
    return owner.get("host") != socket.gethostname()


def is_alive(owner: Mapping[str, Any], silent_for: float) -> bool:
    """Whether the process described by `this_process` lives.

    Args:
        owner: pid, host and, if known, born.
        silent_for: seconds since its last heartbeat; decides about a process of another machine or container.
    """
    pid = owner.get("pid")
    if is_elsewhere(owner) or not isinstance(pid, int):
        return is_recent(silent_for)
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # the process belongs to another user
        return True
    birth = _birth(pid)
    return birth != "ended" and owner.get("born") in (None, birth)


def _birth(pid: int) -> str | None:
    """Start time of a process, in ticks since boot; "ended" for a zombie process.

    `None` without /proc, as on macOS.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the name before it may contain spaces and brackets
    return "ended" if state in "ZX" else fields[18]


class Heartbeat:
    """Calls a function every few seconds in a thread, until it is stopped.

    Args:
        beat: function to call; must not raise.
        seconds: between two calls; `None`: HEARTBEAT_SECONDS.
    """

    def __init__(self, beat: Callable[[], None], seconds: float | None = None) -> None:
        self._beat, self._seconds = beat, seconds
        self._over = threading.Event()
        self._one_at_a_time = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop; after this returns, no call is running or will begin."""
        self._over.set()
        with self._one_at_a_time:  # not a join: a signal handler may call this inside a call of the main thread
            pass

    def _run(self) -> None:
        while not self._over.wait(HEARTBEAT_SECONDS if self._seconds is None else self._seconds):
            with self._one_at_a_time:
                if not self._over.is_set():
                    self._beat()
