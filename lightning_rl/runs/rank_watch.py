"""Ends a rank when another rank of the run has died, even if this one waits for something else at that time."""

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
    """Context that watches other ranks; if one has failed, it raises `RankError` in the main thread.

    A collective operation fails by itself when a rank dies, because its sockets close. A rank that waits for a slow
    environment does not, so a signal interrupts it; if that has no effect, the process ends itself.

    Args:
        find_failure: describes the rank that has failed or died; `None` if none has.
        report: called with that description before the process ends itself.

    Attributes:
        failure: what `find_failure` returned first, other than `None`.
    """

    def __init__(
        self, find_failure: Callable[[], str | None], report: Callable[[str], None] = lambda failure: None
    ) -> None:
        self._find_failure, self._report = find_failure, report
        self.failure: str | None = None
        self._over = threading.Event()
        self._main = threading.get_ident()
        self._before: Any = None
        self._thread = threading.Thread(target=self._poll, name="rank watch", daemon=True)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python allows no handlers elsewhere
            self._before = signal.signal(WAKE, self._raise_rank_error)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        if self._before is not None:
            signal.signal(WAKE, self._before)

    def wait_for_failure(self, seconds: float = 0.0) -> str | None:
        """Describe the rank that has failed; wait up to `seconds` for one, and return `None` if none has."""
        deadline = time.monotonic() + seconds
        while not (failure := self.failure or self._find_failure()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.failure = failure
        return failure

    def _poll(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            if self.wait_for_failure() is None:
                continue
            if self._over.wait(UNWIND_SECONDS):
                return
            if self._before is not None:
                signal.pthread_kill(self._main, WAKE)
            if not self._over.wait(HARD_SECONDS):
                self._kill_process()

    def _raise_rank_error(self, signum: int, frame: FrameType | None) -> None:
        raise RankError(self.failure or "another rank is gone")

    def _kill_process(self) -> None:
        print(f"error: {self.failure}", file=sys.stderr, flush=True)
        self._report(self.failure or "")
        for process in multiprocessing.active_children():  # environment processes
            process.kill()
        os._exit(1)


def describe_exit(rank: int, pid: int, code: int) -> str:
    """Describe how a rank ended, from its exit code."""
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"rank {rank} (process {pid}) {how}"
