"""Advantage actor-critic, asynchronous."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from lightning_rl.models.filters import RewardFilterName
from lightning_rl.policies.a2c import A2C
from lightning_rl.ranges import CoefficientSchedule, LearningRate, Positive

__all__ = ["A3C"]


class A3C(A2C):
    """A2C whose workers compute gradients asynchronously. Mnih et al. 2016, arXiv:1602.01783.

    The asynchronous part is `data=gradients`, which other on-policy algorithms can use as well.

    Args:
        observation_space, action_space, entropy_coef, lr, max_grad_norm, reward_filter, keywords: as `A2C`.
    """

    data = "gradients"

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        entropy_coef: CoefficientSchedule = 0.01,
        lr: LearningRate = 1e-3,
        max_grad_norm: Positive | None = 40.0,
        reward_filter: RewardFilterName = "none",
        **keywords: Any,
    ) -> None:
        super().__init__(
            observation_space,
            action_space,
            entropy_coef=entropy_coef,
            lr=lr,
            max_grad_norm=max_grad_norm,
            reward_filter=reward_filter,
            **keywords,
        )
