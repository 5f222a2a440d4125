"""Ape-X: DQN that replays by priority what many workers collect, each with an ε of its own."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from lightning_rl.policies.dqn import DQN
from lightning_rl.ranges import Count, LearningRate, Positive

__all__ = ["ApexDQN"]


class ApexDQN(DQN):
    """Double, dueling DQN; its config shards the replay buffer and lets workers act while it learns.

    Horgan et al. 2018, arXiv:1803.00933. What makes it Ape-X is `data=apex` and
    `exploration=per_worker_epsilon_greedy`; `data=apex` feeds other off-policy algorithms, too.

    Args:
        observation_space, action_space, dueling, target_update_interval, lr, max_grad_norm, keywords: as `DQN`.
    """

    data = "apex"

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        dueling: bool = True,
        target_update_interval: Count = 2500,
        lr: LearningRate = 1e-4,
        max_grad_norm: Positive | None = 40.0,
        **keywords: Any,
    ) -> None:
        super().__init__(
            observation_space,
            action_space,
            dueling=dueling,
            target_update_interval=target_update_interval,
            lr=lr,
            max_grad_norm=max_grad_norm,
            **keywords,
        )
