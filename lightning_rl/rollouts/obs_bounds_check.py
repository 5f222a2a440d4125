"""Finds observations that are out of bounds, also after the check before the run, which takes 20 steps only."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from lightning_rl.envs.check import within_rounding
from lightning_rl.spaces import leaf_spaces, leaf_values

__all__ = ["ObsBoundsCheck"]

log = logging.getLogger(__name__)

CHECK_EVERY = 1000  # env steps of a worker between two checks


class ObsBoundsCheck:
    """Compares a worker's latest observations with the bounds of their space, once in 1000 env steps.

    Only bounds are checked: vector environments bring observations into the space's shape and dtype, or fail.

    Args:
        space: the space of one environment's observations.
        where: names environment and worker in the warning.
        name_row: names a row of the observations in the warning.

    Attributes:
        due: env steps at which to call `check` next; infinite after a warning, which is given once.
    """

    def __init__(self, space: Space[Any], where: str, name_row: Callable[[int], str]) -> None:
        self.space, self.where, self.name_row = space, where, name_row
        bounds = [(path, bounds_of(leaf)) for path, leaf in leaf_spaces(space)]
        self.bounds = [(place, path, *found) for place, (path, found) in enumerate(bounds) if found is not None]
        self.due = 0.0 if self.bounds else float("inf")

    def check(self, obs: Any, rows: np.ndarray | None = None, *, env_steps: int) -> None:
        """Warn if an observation of `[B, *]` is out of bounds.

        Args:
            obs: nested as the space.
            rows: bool `[B]`, which rows are observations; `None`: all.
            env_steps: the number of env steps of the worker so far.
        """
        self.due = env_steps + CHECK_EVERY
        if problem := self.describe(obs, rows):
            self.due = float("inf")
            log.warning("%s; fix the space or the environment (said once)", problem)

    def describe(self, obs: Any, rows: np.ndarray | None = None) -> str:
        """Say which observation of `[B, *]` is out of bounds; "" if none is. Arguments as those of `check`."""
        leaves = leaf_values(self.space, obs)
        for place, path, low, high in self.bounds:
            values = np.asarray(leaves[place])
            outside = (values < low) | (values > high)
            if rows is not None:
                outside[~rows] = False
            if outside.any():
                outside &= ~within_rounding(values, low, high)
            if outside.any():
                env, *index = np.argwhere(outside)[0].tolist()
                what = f"observation {path!r}" if path else "the observation"
                at = f" at index {index}" if index else ""
                return (
                    f"{self.where} left its observation_space: {what} of {self.name_row(env)} is "
                    f"{values[(env, *index)]}{at}, outside [{low[tuple(index)]}, {high[tuple(index)]}]"
                )
        return ""


def bounds_of(space: Space[Any]) -> tuple[np.ndarray, np.ndarray] | None:
    """Lowest and highest values of a leaf, `[*]`; `None` where no value of its dtype can be outside."""
    if isinstance(space, spaces.Box):
        kind = np.dtype(space.dtype)
        info: Any = np.iinfo(kind) if np.issubdtype(kind, np.integer) else None
        least, most = (-np.inf, np.inf) if info is None else (info.min, info.max)
        free = bool((space.low <= least).all() and (space.high >= most).all())
        return None if free or kind.kind == "b" else (space.low, space.high)
    if isinstance(space, spaces.Discrete):
        return np.asarray(space.start), np.asarray(space.start + space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, space.dtype), np.ones(space.shape, space.dtype)
    return None
