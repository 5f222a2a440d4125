"""Numbers that change with the env steps taken: a constant, or points joined by straight lines."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from lightning_rl.errors import ConfigError

__all__ = ["Schedule", "check_schedule", "schedule_value"]

Schedule = float | Sequence[Sequence[float]]


def schedule_value(schedule: Schedule, env_steps: int) -> float:
    """The schedule at `env_steps`: linear between its points, constant before the first and after the last."""
    if isinstance(schedule, int | float):
        return float(schedule)
    steps = [point[0] for point in schedule]
    after = bisect_right(steps, env_steps)
    if after == 0 or after == len(steps):
        return float(schedule[min(after, len(steps) - 1)][1])
    (start, low), (stop, high) = schedule[after - 1], schedule[after]
    return float(low + (high - low) * (env_steps - start) / (stop - start))


def check_schedule(name: str, schedule: Any) -> None:
    """Refuse what is neither a finite number nor `[[env_step, value], …]` with rising steps.

    Raises:
        ConfigError: names the key and the value.
    """
    if _is_number(schedule):
        return
    points = list(schedule) if _is_list(schedule) else []
    paired = all(_is_list(point) and len(point) == 2 and all(map(_is_number, point)) for point in points)
    if not points or not paired or any(a[0] >= b[0] for a, b in pairwise(points)):
        expected = "a number, or [[env_step, value], …] with rising steps"
        raise ConfigError(f"{name}={schedule!r}; expected {expected}, such as [[0, 3e-4], [1_000_000, 0.0]]")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
