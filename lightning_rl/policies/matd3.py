"""Multi-agent TD3: MADDPG with twin critics, delayed actors and smoothed targets."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from lightning_rl.policies.maddpg import MADDPG
from lightning_rl.schema.ranges import Count, Critics, NonNegative

__all__ = ["MATD3"]


class MATD3(MADDPG):
    """MADDPG with TD3's additions. Ackermann et al. 2019, arXiv:1910.01465.

    Args:
        observation_space, action_space, num_critics, policy_delay, target_noise, keywords: see `MADDPG`.
    """

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        num_critics: Critics = 2,
        policy_delay: Count = 2,
        target_noise: NonNegative = 0.2,
        **keywords: Any,
    ) -> None:
        super().__init__(
            observation_space,
            action_space,
            num_critics=num_critics,
            policy_delay=policy_delay,
            target_noise=target_noise,
            **keywords,
        )
