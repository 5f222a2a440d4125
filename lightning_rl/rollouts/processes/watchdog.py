"""What a process watches of itself: how long its environments take, how it ended, and how much memory it occupies."""

from __future__ import annotations

import faulthandler
import os
import resource
import sys
import threading
import time
import traceback
from typing import IO, Any

from gymnasium.vector import VectorEnv, VectorWrapper

__all__ = ["Watchdog", "WatchedEnv", "resident_mb"]

MB = 1024**2
LOOKS = 8  # at the clock within the time that is allowed: it is exceeded by an eighth at most
SHORTEST_LOOK_S = 0.02


class Watchdog:
    """Ends this process when an environment takes too long, and leaves behind where it was; also after a crash.

    A thread looks at the clock, so code that never lets other threads run can only be noticed from outside.

    Args:
        path: of the file for that; `None`, or a directory that is not on this machine: standard error.
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
        """From now on there are so many seconds for what begins."""
        self._doing, self._until = doing, time.monotonic() + seconds

    def end(self) -> None:
        """It is done."""
        self._until = float("inf")

    def watch(self, seconds: float) -> None:
        """Look at the clock often enough to notice when something takes so long."""
        self._owner = threading.get_ident()
        interval = max(SHORTEST_LOOK_S, seconds / LOOKS)
        self._thread = threading.Thread(target=self._watch, args=(interval,), name="watchdog", daemon=True)
        self._thread.start()

    def _watch(self, interval: float) -> None:
        while time.monotonic() < self._until:
            time.sleep(interval)
        self._file.write(f"{self._doing}; it was here:\n")
        traceback.print_stack(sys._current_frames()[self._owner], file=self._file)
        self._file.flush()
        os._exit(1)  # whoever hangs does not hear anything softer


class WatchedEnv(VectorWrapper):
    """A vector environment whose resets and steps must not take long.

    Args:
        env: it.
        watchdog: who ends the process.
        reset_timeout_s, step_timeout_s: how long, seconds; `None`: any time.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        watchdog: Watchdog,
        reset_timeout_s: float | None,
        step_timeout_s: float | None,
    ) -> None:
        super().__init__(env)
        self.watchdog, self.reset_timeout_s, self.step_timeout_s = watchdog, reset_timeout_s, step_timeout_s

    def reset(self, **keywords: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Reset, in time."""
        return self._in_time("reset", self.reset_timeout_s, lambda: self.env.reset(**keywords))

    def step(self, actions: Any) -> Any:
        """Step, in time."""
        return self._in_time("step", self.step_timeout_s, lambda: self.env.step(actions))

    def _in_time(self, verb: str, seconds: float | None, call: Any) -> Any:
        if seconds is None:
            return call()
        self.watchdog.begin(f"its environments took more than workers.{verb}_timeout_s={seconds:g} in {verb}", seconds)
        try:
            return call()
        finally:
            self.watchdog.end()


def resident_mb() -> float:
    """Memory that this process occupies now, MiB; where the system does not tell, the most it ever occupied."""
    if sys.platform == "linux":
        with open("/proc/self/statm", "rb", buffering=0) as statm:
            return int(statm.read().split()[1]) * resource.getpagesize() / MB
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / MB if sys.platform == "darwin" else peak / 1024
