"""DQN with conservative Q-values, for recorded data."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from torch import Tensor

from lightning_rl.learning.metrics import Metrics
from lightning_rl.losses.offline import conservative_gap
from lightning_rl.losses.value import weighted_mean
from lightning_rl.policies.dqn import DQN
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Coefficient

__all__ = ["DiscreteCQL"]


class DiscreteCQL(DQN):
    """Conservative Q-learning: DQN that lowers the Q-values of all actions and raises those of recorded ones.

    Kumar et al. 2020, arXiv:2006.04779, section 3.2 (CQL(H)) with discrete actions.

    Args:
        observation_space, action_space: the spaces of a single environment; actions must be Discrete.
        min_q_weight: weight of the mean of log Σₐ exp Q(s, a) − Q(s, a_data); 0 is DQN.
        keywords: see `DQN`: double, dueling, noisy, num_atoms, num_quantiles and those of `Policy`.

    Raises:
        UnsupportedSpaceError: the actions are not Discrete.
        ConfigError: a number is out of range, or two extensions exclude each other.
    """

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        min_q_weight: Coefficient = 1.0,
        **keywords: Any,
    ) -> None:
        super().__init__(observation_space, action_space, **keywords)
        self.min_q_weight = min_q_weight

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """DQN's loss, plus the weighted gap between all actions and the recorded one."""
        td_loss, metrics = super().loss(batch)
        q_values = self.model.expected_q_values(self.model.head_outputs())  # of its last forward, on these rows
        mask = self.mask_of(batch)
        scores = q_values if mask is None else q_values.masked_fill(~mask, -float("inf"))
        gaps = conservative_gap(scores, self.gather_actions(q_values, batch.actions))
        gap = weighted_mean(gaps, batch.get("weights"))
        return td_loss + self.min_q_weight * gap, {**metrics, "conservative_gap": gap}
