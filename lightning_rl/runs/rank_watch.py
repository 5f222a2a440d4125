"""Ends a rank when another rank of the run has died, whatever this one is doing at that time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

from lightning_rl.errors import RankError

__all__ = ["RankWatch", "describe_exit"]

POLL_SECONDS = 0.25
UNWIND_SECONDS = 3.0  # a collective operation fails by itself when a rank is gone
HARD_SECONDS = 7.0  # further time until a process that no signal interrupts is killed

WAKE = signal.SIGUSR2


class RankWatch:
    """Context that watches other ranks; if one is gone, the main thread gets a `RankError`.

    A collective operation fails by itself when a rank dies, as its sockets close. A rank that waits for a slow
    environment does not notice, so a signal interrupts it, and it is killed if that does not help.

    Args:
        gone: describes the rank that is gone; `None` if none is.
        last_words: called with that description before the process is killed.

    Attributes:
        found: the description from `gone`.
    """

    def __init__(self, gone: Callable[[], str | None], last_words: Callable[[str], None] = lambda found: None) -> None:
        self.gone, self.last_words = gone, last_words
        self.found: str | None = None
        self._over = threading.Event()
        self._main = threading.get_ident()
        self._before: Any = None
        self._thread = threading.Thread(target=self._look, name="rank watch", daemon=True)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python allows no handlers elsewhere
            self._before = signal.signal(WAKE, self._wake)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        if self._before is not None:
            signal.signal(WAKE, self._before)

    def look(self, within: float = 0.0) -> str | None:
        """Describe the rank that is gone, now or within that many seconds."""
        deadline = time.monotonic() + within
        while not (found := self.found or self.gone()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.found = found
        return found

    def _look(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            if self.look() is None:
                continue
            if self._over.wait(UNWIND_SECONDS):
                return
            if self._before is not None:
                signal.pthread_kill(self._main, WAKE)
            if not self._over.wait(HARD_SECONDS):
                self._end()

    def _wake(self, signum: int, frame: FrameType | None) -> None:
        raise RankError(self.found or "another rank is gone")

    def _end(self) -> None:
        print(f"error: {self.found}", file=sys.stderr, flush=True)
        self.last_words(self.found or "")
        for process in multiprocessing.active_children():  # environment processes
            process.kill()
        os._exit(1)


def describe_exit(rank: int, pid: int, code: int) -> str:
    """Describe how a rank ended, from its exit code."""
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"rank {rank} (process {pid}) {how}"
