"""Rainbow: DQN with all its parts on."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from lightning_rl.policies.dqn import DQN

__all__ = ["Rainbow"]


class Rainbow(DQN):
    """Double, dueling, noisy, distributional DQN; its config draws 3-step rows by priority.

    Hessel et al. 2018, arXiv:1710.02298.

    Args:
        observation_space, action_space, dueling, noisy, num_atoms, keywords: as `DQN`.
    """

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        dueling: bool = True,
        noisy: bool = True,
        num_atoms: int = 51,
        **keywords: Any,
    ) -> None:
        super().__init__(observation_space, action_space, dueling=dueling, noisy=noisy, num_atoms=num_atoms, **keywords)
