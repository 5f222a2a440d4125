"""A policy that acts at random, for opponents and as a measure to compare with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from lightning_rl.envs.action_masks import choice_sizes, sample_allowed
from lightning_rl.policies.scratch_policy import ScratchPolicy
from lightning_rl.sample_batch import action_mask_of, row_count
from lightning_rl.schema.ranges import Seed
from lightning_rl.spaces.structure import leaf_spaces

__all__ = ["RandomPolicy"]


class RandomPolicy(ScratchPolicy):
    """Samples random actions from the action space, discrete parts uniformly among the legal ones; it never learns.

    Its data serve off-policy estimation: "action_logp" is recorded for discrete actions and for floats with finite
    bounds, as a density in the environment's units.

    Args:
        observation_space, action_space: the spaces of a single environment, of any kind.
        config: unused.
        seed: seed of the actions.
    """

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        config: Mapping[str, Any] | None = None,
        *,
        seed: Seed = 0,
    ) -> None:
        super().__init__(observation_space, action_space, config, seed=seed)
        self._choices = np.array(choice_sizes(action_space), np.int64)
        self._float_logp = _float_logp(action_space)
        self.seed_exploration(self.generators.seed)

    def compute_actions(
        self, obs: Any, state: Any = (), *, action_mask: Any = None, logp: bool = True, **unused: Any
    ) -> Any:
        """Random actions for observations `[B, *]`.

        Args:
            obs: only their number is read, and "action_mask" of a Dict observation.
            state: not used.
            action_mask: `[B, n]`, allowed alternatives of the discrete parts, side by side.
            logp: whether to return "action_logp", float32 `[B]`.
            unused: further arguments of `Policy.compute_actions`.
        """
        space, rows = self.action_space, row_count(obs)
        mask = action_mask_of(obs, action_mask)
        allowed = None if mask is None else np.asarray(mask, dtype=bool).reshape(rows, -1)
        columns = {"action_logp": self._logp(allowed, rows)} if logp and self._float_logp is not None else {}
        if not isinstance(space, spaces.Discrete):
            if allowed is None:
                return [space.sample() for _ in range(rows)], [], columns
            return [sample_allowed(space, row, self._rng) for row in allowed], [], columns
        if allowed is None:
            return space.start + self._rng.integers(space.n, size=rows), [], columns
        # The largest of n random numbers is at each allowed action with the same probability.
        keys = self._rng.random((rows, int(space.n))) * allowed
        return space.start + keys.argmax(1), [], columns

    def _logp(self, allowed: np.ndarray | None, rows: int) -> np.ndarray:
        """Log-density of any action among the allowed ones, `[B]`."""
        counts = np.broadcast_to(self._choices, (rows, len(self._choices)))
        if allowed is not None and len(self._choices):
            starts = np.concatenate([[0], self._choices[:-1].cumsum()])
            found = np.add.reduceat(allowed, starts, axis=1, dtype=np.int64)
            counts = np.where(found > 0, found, counts)  # a choice without any alternative may take all
        return (self._float_logp - np.log(counts).sum(1)).astype(np.float32)

    def seed_exploration(self, seed: int) -> None:
        """Seed the actions."""
        super().seed_exploration(seed)
        self._rng = np.random.default_rng(seed)


def _float_logp(space: Space[Any]) -> float | None:
    """Log-density of the float parts of a uniform action; `None` if a part is unbounded, or no array of numbers."""
    total = 0.0
    for _, leaf in leaf_spaces(space):
        if not isinstance(leaf, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            return None
        if isinstance(leaf, spaces.Box) and leaf.dtype.kind == "f":
            if not leaf.is_bounded():
                return None
            total -= float(np.log(leaf.high.astype(np.float64) - leaf.low).sum())
    return total
