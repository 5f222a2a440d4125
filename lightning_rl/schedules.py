"""Numbers that change with the env steps taken: a constant, or points joined by straight lines."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
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
    """Refuse what is neither a number nor `[[env_step, value], …]` with rising steps.

    Raises:
        ConfigError: names the key and the value.
    """
    if isinstance(schedule, int | float) and not isinstance(schedule, bool):
        return
    points = schedule if isinstance(schedule, Sequence) and not isinstance(schedule, str) else []
    pairs = [p for p in points if isinstance(p, Sequence) and not isinstance(p, str) and len(p) == 2]
    numbers = all(isinstance(x, int | float) for pair in pairs for x in pair)
    rising = numbers and all(a[0] < b[0] for a, b in zip(pairs, pairs[1:], strict=False))
    if not points or len(pairs) != len(points) or not rising:
        raise ConfigError(f"{name}={schedule!r}; expected a number, or [[env_step, value], …] with rising steps")
