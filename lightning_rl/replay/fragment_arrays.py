"""Converts a rollout fragment to plain arrays for a replay ring, and checks it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lightning_rl.errors import ConfigError
from lightning_rl.replay.columns import Path, leaves_of
from lightning_rl.sample_batch import STEP_INPUTS, Fragment, SampleBatch, typed

__all__ = ["NEEDED", "FragmentArrays"]

NEEDED = ("obs", "actions", "rewards", "terminated", "truncated", "valid")
IN_FLAGS = NEEDED[3:]


@dataclass(frozen=True, slots=True)
class FragmentArrays:
    """A rollout fragment as numpy arrays.

    Args:
        leaves: path → array to store, `[T+1, B, …]` for `STEP_INPUTS`, else `[T, B, …]`.
        valid, terminated, truncated: bool `[T, B]`.
        t: step within the episode `[T, B]`; `None`: not recorded.
    """

    leaves: dict[Path, np.ndarray]
    valid: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    t: np.ndarray | None = None

    @classmethod
    def from_fragment(cls, fragment: SampleBatch, names: Iterable[str]) -> FragmentArrays:
        """Take the named columns of a fragment, as far as it has them.

        Raises:
            ConfigError: it is not a fragment, lacks what every ring needs, or has ends without a final observation.
        """
        if any(name not in fragment for name in NEEDED) or not isinstance(typed(fragment), Fragment):
            raise ConfigError(
                f"a replay buffer takes rollout fragments [T, B, …] with {', '.join(NEEDED)}; this is {fragment}: "
                "pass what RolloutWorker.sample() gives, before any postprocessing"
            )
        leaves = leaves_of(fragment, [name for name in names if name not in IN_FLAGS])
        terminated, truncated, valid = (np.asarray(fragment[name]) for name in IN_FLAGS)
        if len(valid) > 1 and ((terminated | truncated)[:-1] & valid[1:]).any():
            raise ConfigError(
                "a row of the fragment follows an episode's end directly; a replay buffer needs the row that resets, "
                "with the final observation and valid=False, between them: pass what RolloutWorker.sample() gives"
            )
        return cls(leaves, valid, terminated, truncated, np.asarray(fragment.t) if "t" in fragment else None)

    @property
    def num_envs(self) -> int:
        """Number of environments `B`."""
        return self.valid.shape[1]

    def slice(self, start: int, stop: int) -> FragmentArrays:
        """Rows from `start` to `stop`, including the observation after them."""
        if start == 0 and stop >= len(self.valid):
            return self
        leaves = {path: leaf[start : stop + (path[0] in STEP_INPUTS)] for path, leaf in self.leaves.items()}
        rows = slice(start, stop)
        t = None if self.t is None else self.t[rows]
        return FragmentArrays(leaves, self.valid[rows], self.terminated[rows], self.truncated[rows], t)
