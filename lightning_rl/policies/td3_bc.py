"""TD3 that stays close to recorded actions."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from torch import Tensor

from lightning_rl.losses.offline import regularized_policy_loss
from lightning_rl.policies.td3 import TD3
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Coefficient, LearningRate

__all__ = ["TD3BC"]


class TD3BC(TD3):
    """TD3 with a behavior cloning term in the actor's loss. Fujimoto and Gu 2021, arXiv:2106.06860.

    Args:
        observation_space, action_space: the spaces of a single environment; actions must be a bounded float Box.
        alpha: weight of Q₁(s, π(s)) / mean |Q₁| relative to the squared distance; 0 clones the recorded actions.
        lr: see `Policy`.
        keywords: see `TD3`.

    Raises:
        UnsupportedSpaceError: the actions are not a bounded float Box.
        ConfigError: a number is out of range.
    """

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        alpha: Coefficient = 2.5,
        lr: LearningRate = 3e-4,
        **keywords: Any,
    ) -> None:
        super().__init__(observation_space, action_space, lr=lr, **keywords)
        self.alpha = alpha

    def actor_loss(self, q_values: Tensor, actions: Tensor, batch: SampleBatch) -> Tensor:
        """Mean (π(s) − a)² − α mean Q₁ / mean |Q₁|, with the mean over rows and entries of the actions."""
        distances = (actions - batch.actions.flatten(1)).square().mean(1)
        return regularized_policy_loss(q_values[0], distances, self.alpha)
