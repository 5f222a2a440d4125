"""Notices that a process of the run has died, and sees to it that this one ends as well, whatever it is doing."""

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
UNWIND_SECONDS = 3.0  # a collective operation fails by itself as soon as a rank is gone; then nothing has to be done
HARD_SECONDS = 7.0  # after that, for a process that waits for something that no signal reaches

WAKE = signal.SIGUSR2


class RankWatch:
    """Looks, while it is entered, whether another rank is gone; then the main thread gets a `RankError`.

    A rank that waits for others in a collective operation hears of their death from its sockets. One that acts in a
    slow environment does not, so it is woken by a signal, and ended for good if that does not help.

    Args:
        gone: says which rank is gone, `None` while all are there.
        last_words: called with that before the process is ended for good.

    Attributes:
        found: what `gone` said.
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
        """Which rank is gone, now or within so many seconds."""
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
        for process in multiprocessing.active_children():  # an environment each
            process.kill()
        os._exit(1)


def describe_exit(rank: int, pid: int, code: int) -> str:
    """How a rank came to its end, from its exit code."""
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"rank {rank} (process {pid}) {how}"
