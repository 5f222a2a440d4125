"""Checks that what an environment returns is what its spaces and the API say.

Gymnasium's and PettingZoo's checkers are stricter than a run needs: they refuse arrays that an environment writes
again, bounds exceeded by a rounding, and agents that stay after their end; and their errors name no environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from lightning_rl.errors import EnvError

__all__ = ["SKIP", "check_reward", "check_value", "misfit", "on_one_line", "within_rounding"]

ROUNDING = 1e-5  # how far floats may be outside of their bounds: this, and this share of the bound
LONGEST_SPACE = 200  # characters of a space in a message
SKIP = "env.check=false skips this check"


def check_value(space: gym.Space[Any], name: str, value: Any, what: str, space_name: str = "observation_space") -> None:
    """Check that an observation or a state is finite and in its space, except for a rounding.

    Args:
        space: where it belongs.
        name: the name of the environment.
        value: the observation or state.
        what: what it is, and which call returned it: "observation of reset".
        space_name: the name of the space's attribute.

    Raises:
        EnvError: names what is wrong with it.
    """
    if problem := misfit(space, value):
        raise EnvError(
            f"environment {name!r}: {what} is outside its {space_name}: {problem}: fix the space or the environment "
            f"({SKIP})"
        )


def misfit(space: gym.Space[Any], value: Any, part: str = "") -> str:
    """The first part of a value that is not finite or not in its space; "" if there is none.

    Bounds are a rounding wider, and dtypes may be others that NumPy casts by itself.

    Args:
        space: where the value belongs.
        value: nested as the space.
        part: where the value is in a larger one.
    """
    if isinstance(space, gym.spaces.Dict) and isinstance(value, Mapping):
        if value.keys() != space.spaces.keys():
            problem = f"got a dict with {[*value]}, expected {[*space.spaces]}"
        else:
            children = ((key, child, value[key]) for key, child in space.spaces.items())
            return _first_misfit(children, part)
    elif isinstance(space, gym.spaces.Tuple) and isinstance(value, tuple) and len(value) == len(space):
        return _first_misfit(zip(range(len(value)), space.spaces, value, strict=True), part)
    elif isinstance(space, gym.spaces.Box):
        problem = _misfit_of_box(space, value)
    else:
        problem = "" if space.contains(value) else f"got {_describe(value)}, expected {on_one_line(space)}"
    return f"part {part!r}: {problem}" if part and problem else problem


def _first_misfit(children: Any, part: str) -> str:
    found = (misfit(space, value, f"{part}/{key}" if part else str(key)) for key, space, value in children)
    return next(filter(None, found), "")


def _misfit_of_box(space: gym.spaces.Box, value: Any) -> str:
    if not isinstance(value, np.ndarray | np.generic):
        return f"got {_describe(value)}, expected a numpy array of {on_one_line(space)}"
    problem, value = "", np.asarray(value)
    if value.shape == space.shape and np.can_cast(value.dtype, np.dtype(space.dtype), "same_kind"):
        outside = np.argwhere(~(within_rounding(value, space.low, space.high) & np.isfinite(value)))
        if not len(outside):
            return ""
        at = tuple(outside[0].tolist())
        if not np.isfinite(value[at]):
            return f"{value[at]} at index {[*at]} is not finite"
        problem = f": {value[at]} at index {[*at]} is outside [{space.low[at]}, {space.high[at]}]"
    return f"got {_describe(value)}, expected {on_one_line(space)}{problem}"


def within_rounding(values: np.ndarray | np.generic, low: Any, high: Any) -> np.ndarray:
    """Which values are in their bounds; floats may be a rounding outside."""
    exact = np.asarray(values).dtype.kind != "f"
    return np.isclose(values, np.clip(values, low, high), *((0.0, 0.0) if exact else (ROUNDING, ROUNDING)))


def check_reward(name: str, reward: Any, where: str) -> None:
    """Check that a reward is one finite number.

    Args:
        name: the name of the environment.
        reward: the reward of one agent.
        where: which call returned it, and for which agent.

    Raises:
        EnvError: says what it is.
    """
    if np.shape(reward) != ():
        raise EnvError(
            f"environment {name!r}: reward of {where} has shape {np.shape(reward)}; expected one number: weigh "
            "several objectives, as env.wrappers=[{wrapper: mo_gymnasium.wrappers.LinearReward, weight: [0.5, 0.5]}]"
        )
    if not isinstance(reward, int | float | np.number | np.bool_ | np.ndarray) or not np.isfinite(reward):
        raise EnvError(f"environment {name!r}: reward of {where} is {reward!r}; expected one finite number")


def on_one_line(space: gym.Space[Any]) -> str:
    """A space in words, shortened if it is long."""
    text = " ".join(str(space).split())
    return text if len(text) <= LONGEST_SPACE else f"{text[: LONGEST_SPACE - 1]}…"


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        limits = f", values in [{value.min()}, {value.max()}]" if value.size else ""
        return f"array of shape {value.shape}, {value.dtype}{limits}"
    return f"{type(value).__name__} {value!r}"[:200]
