"""Watches this process: how long its environments take, and how it crashes."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
import traceback
from typing import IO, Any

from gymnasium.vector import VectorEnv, VectorWrapper

from lightning_rl.rollouts.processes.limits import Limits

__all__ = ["Watchdog", "WatchedEnv"]

CHECKS = 8  # of the clock within the allowed time, which is exceeded by an eighth at most
SHORTEST_INTERVAL_S = 0.02


class Watchdog:
    """Ends this process when an environment takes too long, and writes its traceback into a file; also after a crash.

    A thread checks the clock, so code that never lets other threads run can only be noticed from outside.

    Args:
        path: the path of the file for the traceback; `None`, or a directory that is not on this machine: standard
            error.
    """

    def __init__(self, path: str | None = None) -> None:
        self._file: IO[str] = sys.__stderr__ or sys.stderr
        if path is not None and os.path.isdir(os.path.dirname(path)):
            self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115 - open as long as the process lives
        faulthandler.enable(self._file)
        self._until = float("inf")
        self._doing = ""
        self._thread: threading.Thread | None = None

    def begin(self, doing: str, seconds: float) -> None:
        """Begin something that may take that many seconds; `doing` is the message if it takes longer."""
        self._doing, self._until = doing, time.monotonic() + seconds

    def end(self) -> None:
        """End it: there is no time limit until the next `begin`."""
        self._until = float("inf")

    def watch(self, seconds: float) -> None:
        """Start the thread; it checks the clock often enough for time limits of `seconds`."""
        self._owner = threading.get_ident()
        interval = max(SHORTEST_INTERVAL_S, seconds / CHECKS)
        self._thread = threading.Thread(target=self._watch, args=(interval,), name="watchdog", daemon=True)
        self._thread.start()

    def _watch(self, interval: float) -> None:
        while time.monotonic() < self._until:
            time.sleep(interval)
        self._file.write(f"{self._doing}; it was here:\n")
        traceback.print_stack(sys._current_frames()[self._owner], file=self._file)
        self._file.flush()
        os._exit(1)  # a process that hangs does not react to anything softer


class WatchedEnv(VectorWrapper):
    """A vector environment whose resets and steps have time limits.

    Args:
        env: the vector environment.
        watchdog: ends the process after a time limit.
        limits: reset_timeout_s and step_timeout_s.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], watchdog: Watchdog, limits: Limits) -> None:
        super().__init__(env)
        self.watchdog, self.limits = watchdog, limits

    def reset(self, **keywords: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Reset, within the time limit."""
        return self._within_limit("reset", self.limits.reset_timeout_s, lambda: self.env.reset(**keywords))

    def step(self, actions: Any) -> Any:
        """Step, within the time limit."""
        return self._within_limit("step", self.limits.step_timeout_s, lambda: self.env.step(actions))

    def _within_limit(self, verb: str, seconds: float | None, call: Any) -> Any:
        if seconds is None:
            return call()
        self.watchdog.begin(f"its environments took more than workers.{verb}_timeout_s={seconds:g} in {verb}", seconds)
        try:
            return call()
        finally:
            self.watchdog.end()
