"""RLlib's timer of a piece of code."""

from __future__ import annotations

import time
from collections import deque
from statistics import fmean
from typing import Self

__all__ = ["TimerStat"]


class TimerStat:
    """A context that measures how long its body takes.

    Args:
        window_size: number of the latest measurements that `mean` is over.
    """

    def __init__(self, window_size: int = 10) -> None:
        self._seconds, self._units = deque[float](maxlen=window_size), deque[float](maxlen=window_size)
        self.count, self._total_units = 0, 0.0

    def __enter__(self) -> Self:
        self._started = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.push(time.perf_counter() - self._started)

    def push(self, time_delta: float) -> None:
        """Add a measurement in seconds."""
        self._seconds.append(time_delta)
        self.count += 1

    def push_units_processed(self, n: float) -> None:
        """Add the number of units, such as rows, that the latest measurement was of."""
        self._units.append(n)
        self._total_units += n

    @property
    def mean(self) -> float:
        """Seconds, the mean of the latest measurements; 0 without one."""
        return fmean(self._seconds) if self._seconds else 0.0

    @property
    def mean_units_processed(self) -> float:
        """Units of a measurement, the mean of the latest ones; 0 without one."""
        return fmean(self._units) if self._units else 0.0

    @property
    def mean_throughput(self) -> float:
        """Units per second of the latest measurements; 0 without one."""
        total = sum(self._seconds)
        return sum(self._units) / total if total else 0.0

    @property
    def units_processed(self) -> float:
        """All units so far."""
        return self._total_units
