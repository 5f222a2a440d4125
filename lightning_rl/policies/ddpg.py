"""Deep deterministic policy gradient: TD3 with its additions switched off."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from lightning_rl.policies.td3 import TD3
from lightning_rl.schema.ranges import Count, Critics, NonNegative

__all__ = ["DDPG"]


class DDPG(TD3):
    """Deep deterministic policy gradient, with one critic. Lillicrap et al. 2016, arXiv:1509.02971.

    Args:
        observation_space, action_space, keywords: see `TD3`.
        num_critics, policy_delay, target_noise: see `TD3`; values other than the defaults enable TD3's additions.
    """

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        num_critics: Critics = 1,
        policy_delay: Count = 1,
        target_noise: NonNegative = 0.0,
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
