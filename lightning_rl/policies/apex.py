"""Ape-X: DQN with distributed prioritized replay and a different ε in every worker."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from lightning_rl.policies.dqn import DQN
from lightning_rl.schema.ranges import Positive

__all__ = ["ApexDQN"]


class ApexDQN(DQN):
    """Double, dueling DQN with a sharded replay buffer and workers that act while the learner learns.

    Horgan et al. 2018, arXiv:1803.00933. The distributed part is `data=apex` and
    `exploration=per_worker_epsilon_greedy`; other off-policy algorithms can use `data=apex` as well.

    Args:
        observation_space, action_space, dueling, keywords: see `DQN`.
        max_grad_norm: see `Policy`.
    """

    data = "apex"

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        dueling: bool = True,
        max_grad_norm: Positive | None = 40.0,
        **keywords: Any,
    ) -> None:
        super().__init__(
            observation_space,
            action_space,
            dueling=dueling,
            max_grad_norm=max_grad_norm,
            **keywords,
        )
