"""What Gym before 0.26 has and Gymnasium has not: its own spaces, and the mark of a time limit in an info."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium import spaces

from lightning_rl.errors import EnvError

__all__ = ["TIME_LIMIT", "gymnasium_space"]

TIME_LIMIT = "TimeLimit.truncated"  # of an info: `done` is a time limit


def gymnasium_space(space: Any) -> gym.Space[Any]:
    """A space of Gym as one of Gymnasium, which may be one already.

    Raises:
        EnvError: there is none of that name.
    """
    if isinstance(space, gym.Space):
        return space
    kind = type(space).__name__
    if kind == "Box":
        return spaces.Box(space.low, space.high, dtype=space.dtype)
    if kind == "Discrete":
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(space.nvec)
    if kind == "MultiBinary":
        return spaces.MultiBinary(space.n)
    if kind == "Tuple":
        return spaces.Tuple([gymnasium_space(part) for part in space.spaces])
    if kind == "Dict":
        return spaces.Dict({name: gymnasium_space(part) for name, part in space.spaces.items()})
    raise EnvError(f"{space!r} is not a space of Gymnasium, nor a Gym space that it has: {kind}")
