"""A policy that acts at random, for opponents and as a measure to compare with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from lightning_rl.envs.action_masks import sample_allowed
from lightning_rl.policies.scratch_policy import ScratchPolicy
from lightning_rl.sample_batch import action_mask_of, row_count
from lightning_rl.schema.ranges import Seed

__all__ = ["RandomPolicy"]


class RandomPolicy(ScratchPolicy):
    """Samples random actions from the action space, discrete parts uniformly among the legal ones; it never learns.

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
        self.seed_exploration(self.generators.seed)

    def compute_actions(self, obs: Any, state: Any = (), *, action_mask: Any = None, **unused: Any) -> Any:
        """Random actions for observations `[B, *]`.

        Args:
            obs: only their number is read, and "action_mask" of a Dict observation.
            state: not used.
            action_mask: `[B, n]`, allowed alternatives of the discrete parts, side by side.
            unused: further arguments of `Policy.compute_actions`.
        """
        space, rows = self.action_space, row_count(obs)
        mask = action_mask_of(obs, action_mask)
        if not isinstance(space, spaces.Discrete):
            if mask is None:
                return [space.sample() for _ in range(rows)], [], {}
            allowed = np.asarray(mask, dtype=bool).reshape(rows, -1)
            return [sample_allowed(space, row, self._rng) for row in allowed], [], {}
        if mask is None:
            return space.start + self._rng.integers(space.n, size=rows), [], {}
        # The largest of n random numbers is at each allowed action with the same probability.
        keys = self._rng.random((rows, int(space.n))) * np.asarray(mask, dtype=bool)
        return space.start + keys.argmax(1), [], {}

    def seed_exploration(self, seed: int) -> None:
        """Seed the actions."""
        super().seed_exploration(seed)
        self._rng = np.random.default_rng(seed)
