"""Schedules: numbers that change with the env steps taken. Constants, piecewise linear points, and named curves.

In the config of a run, env steps may be written as a share of `total_env_steps`, such as "10%". `to_env_steps` turns
shares into numbers once, when the run is built; so a run that is resumed with more steps has new numbers.

A schedule is plain data and has no state: its value follows from the env steps, which every checkpoint holds. A
resumed run continues exactly, and every worker uses the value that belongs to its weights.
"""

from __future__ import annotations

import math
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, NewType

from lightning_rl.errors import ConfigError, did_you_mean, short_repr

__all__ = [
    "SCHEDULES",
    "EnvSteps",
    "Schedule",
    "Share",
    "check_schedule",
    "is_share",
    "schedule_points",
    "schedule_span",
    "schedule_value",
    "to_env_steps",
]

Share = NewType("Share", str)
"""Text such as "10%": a share of a run's `total_env_steps`."""

EnvSteps = int | Share
"""A number of environment steps, or a share of the run's `total_env_steps`."""

Schedule = float | Sequence[Sequence[float | Share]] | Mapping[str, Any]

ASSUMED_ENV_STEPS = 100_000
"""The length of a run that shares refer to where no run gives one: `total_env_steps` of conf/train.yaml."""

# The part of the way from `initial` to `final` that is left, as a function of the part of `steps` that is done.
CURVES: dict[str, Callable[[float], float]] = {
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),  # Loshchilov and Hutter, arXiv:1608.03983, eq. 5
}
CURVE_KEYS = ("initial", "final", "steps")
SCHEDULES: dict[str, tuple[str, ...]] = {  # type → its required keys; curves also take "start"
    "constant": ("value",),
    "linear": CURVE_KEYS,
    "piecewise": ("points",),
    "exponential": CURVE_KEYS,
    "cosine": CURVE_KEYS,
}
EXPECTED = (
    "a number, or [[env_step, value], …] with rising steps, such as [[0, 3e-4], [1_000_000, 0.0]], "
    "or a mapping such as {type: cosine, initial: 3e-4, final: 0.0, steps: 1_000_000}; "
    "in a run's config, steps may be shares of total_env_steps, such as 50% instead of 0.5"
)


def schedule_value(schedule: Schedule, env_steps: int) -> float:
    """The schedule at `env_steps`.

    Args:
        schedule: a number; or `[[env_step, value], …]`, linear between its points, constant before the first and after
            the last; or a mapping: `{type: constant, value}`, `{type: piecewise, points: [[env_step, value], …]}`, or
            `{type, initial, final, steps, start: 0}` with type linear, exponential (equal ratios in equal steps) or
            cosine, which is `initial` until `start`, and `final` from `start + steps` on. No shares of a run.
        env_steps: environment steps of the whole run.
    """
    if isinstance(schedule, int | float):
        return float(schedule)
    if isinstance(schedule, Mapping):
        kind = schedule["type"]
        if kind == "constant":
            return float(schedule["value"])
        return _interpolate(schedule["points"], env_steps) if kind == "piecewise" else _curve(schedule, env_steps)
    return _interpolate(schedule, env_steps)


def schedule_points(schedule: Schedule) -> list[float]:
    """The values of a (checked) schedule at its corners; all other values lie between them."""
    if isinstance(schedule, int | float):
        return [float(schedule)]
    if isinstance(schedule, Mapping):
        if schedule["type"] == "piecewise":
            return schedule_points(schedule["points"])
        return [float(schedule[key]) for key in ("value", "initial", "final") if key in schedule]
    return [float(point[1]) for point in schedule]


def schedule_span(schedule: Schedule, start: int, stop: int) -> list[float]:
    """The values at `start`, at `stop` and at the corners between them; all others in that range lie between these."""
    points: Any = schedule.get("points", ()) if isinstance(schedule, Mapping) else schedule
    corners = [int(point[0]) for point in points] if _is_list(points) else []
    return [schedule_value(schedule, step) for step in (start, *(c for c in corners if start < c < stop), stop)]


def check_schedule(name: str, schedule: Any, low: float = -math.inf, high: float = math.inf) -> None:
    """Raise an error if `schedule` is not a schedule (see `schedule_value`) or leaves the range `low` to `high`.

    Args:
        name: the config key, for the message.
        schedule: what was given there.
        low, high: bounds for every value of it.

    Raises:
        ConfigError: names the key, the value and what is expected.
    """
    if is_share(schedule) or any(map(is_share, _steps_of(schedule))):
        raise ConfigError(
            f"{name}={short_repr(schedule)}: only a run's config can have shares of its total_env_steps; give env "
            "steps here",
            key=name,
            value=schedule,
        )
    if isinstance(schedule, Mapping):
        _check_mapping(name, schedule)
    elif not _is_number(schedule) and not _are_points(schedule):
        raise ConfigError(f"{name}={short_repr(schedule)}; expected {EXPECTED}", key=name, value=schedule)
    for value in schedule_points(schedule):
        if not low <= value <= high:
            expected = f"at least {low}" if high == math.inf else f"between {low} and {high}"
            raise ConfigError(f"{name}={short_repr(schedule)}; expected values {expected}", key=name, value=schedule)


def _check_mapping(name: str, schedule: Mapping[str, Any]) -> None:
    kind = schedule.get("type")
    if not isinstance(kind, str) or kind not in SCHEDULES:
        raise ConfigError(
            f"{name}.type={short_repr(kind)} is not a schedule.{did_you_mean(str(kind)[:100], SCHEDULES)} "
            f"Choose {', '.join(SCHEDULES)}",
            key=f"{name}.type",
            value=kind,
        )
    needed = SCHEDULES[kind]
    known = ("type", *needed, *(("start",) if needed == CURVE_KEYS else ()))
    for key in schedule:
        if key not in known:
            raise ConfigError(
                f"{name}: no key {short_repr(key)}.{did_you_mean(key, known)} Keys of {kind}: {', '.join(known)}",
                key=f"{name}.{key}",
                value=schedule[key],
            )
    for key in needed:
        if key not in schedule:
            message = f"{name}={short_repr(dict(schedule))} has no {key!r}; {kind} needs {', '.join(needed)}"
            raise ConfigError(message, key=f"{name}.{key}")
    if kind == "piecewise":
        if not _are_points(schedule["points"]):
            raise ConfigError(
                f"{name}.points={short_repr(schedule['points'])}; expected [[env_step, value], …], steps rising",
                key=f"{name}.points",
                value=schedule["points"],
            )
        return
    for key in known[1:]:
        if not _is_number(schedule.get(key, 0)):
            message = f"{name}.{key}={schedule[key]!r}; expected a finite number"
            raise ConfigError(message, key=f"{name}.{key}", value=schedule[key])
    if kind != "constant" and schedule["steps"] <= 0:
        message = f"{name}.steps={schedule['steps']!r}; expected at least 1"
        raise ConfigError(message, key=f"{name}.steps", value=schedule["steps"])
    if kind == "exponential" and not schedule["initial"] * schedule["final"] > 0:
        raise ConfigError(
            f"{name}: exponential from {schedule['initial']!r} to {schedule['final']!r} needs two numbers of one sign, "
            "not 0: use linear or cosine",
            key=name,
            value=schedule,
        )


def is_share(value: Any) -> bool:
    """Whether a value is text such as "10%"."""
    return isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?%", value) is not None


def to_env_steps(value: Any, total_env_steps: int = ASSUMED_ENV_STEPS) -> Any:
    """Replace shares of a run ("10%"), alone or inside a schedule, by numbers of env steps; keep other values.

    A curve without `steps` gets all steps after its `start`.

    Args:
        value: "10%", a schedule whose steps may be such shares, or anything else.
        total_env_steps: length of the run. Only "0%" is 0 env steps; a share smaller than one env step is 1.
    """
    if is_share(value):
        share = _fraction(value)
        return max(1, round(share * total_env_steps)) if share else 0
    if isinstance(value, Mapping):
        own = {**value}
        if "points" in own:
            own["points"] = to_env_steps(own["points"], total_env_steps)
        for key in ("start", "steps"):
            if key in own:
                own[key] = to_env_steps(own[key], total_env_steps)
        if SCHEDULES.get(str(own.get("type"))) == CURVE_KEYS and "steps" not in own and _is_number(own.get("start", 0)):
            own["steps"] = max(1, total_env_steps - own.get("start", 0))
        return own
    if any(map(is_share, _steps_of(value))):  # not rounded: points must increase even in the shortest run
        return [_point_in_env_steps(point, total_env_steps) for point in value]
    return value


def _point_in_env_steps(point: Any, total_env_steps: int) -> Any:
    if not (_is_list(point) and point and is_share(point[0])):
        return point
    return [_fraction(point[0]) * total_env_steps, *point[1:]]


def _steps_of(schedule: Any) -> list[Any]:
    """The values of a schedule (or of something like it) that are numbers of env steps."""
    if isinstance(schedule, Mapping):
        return [*_steps_of(schedule.get("points")), schedule.get("start"), schedule.get("steps")]
    return [point[0] for point in schedule if _is_list(point) and point] if _is_list(schedule) else []


def _fraction(share: str) -> float:
    return float(share.rstrip("%")) / 100


def _curve(schedule: Mapping[str, Any], env_steps: int) -> float:
    initial, final = float(schedule["initial"]), float(schedule["final"])
    done = (env_steps - schedule.get("start", 0)) / schedule["steps"]
    if done <= 0.0 or done >= 1.0:
        return initial if done <= 0.0 else final
    if schedule["type"] == "exponential":
        return initial * (final / initial) ** done
    return final + (initial - final) * CURVES[schedule["type"]](done)


def _interpolate(points: Sequence[Sequence[Any]], env_steps: int) -> float:
    after = bisect_right(points, env_steps, key=itemgetter(0))
    if after == 0 or after == len(points):
        return float(points[min(after, len(points) - 1)][1])
    (start, low), (stop, high) = points[after - 1], points[after]
    return float(low + (high - low) * (env_steps - start) / (stop - start))


def _are_points(value: Any) -> bool:
    points = list(value) if _is_list(value) else []
    paired = all(_is_list(point) and len(point) == 2 and all(map(_is_number, point)) for point in points)
    paired = paired and all(float(step).is_integer() for step, _ in points)  # not shares of the run
    return bool(points) and paired and all(a[0] < b[0] for a, b in pairwise(points))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
