"""Rainbow: DQN with all its extensions switched on."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import gymnasium as gym

from lightning_rl.models.filters import RewardFilterName
from lightning_rl.policies.dqn import DQN
from lightning_rl.schema.ranges import Atoms

__all__ = ["Rainbow"]

ADAM = MappingProxyType({"eps": 1.5e-4})


class Rainbow(DQN):
    """Double, dueling, noisy, distributional DQN; its config uses prioritized replay and 3-step returns.

    Hessel et al. 2018, arXiv:1710.02298.

    Args:
        observation_space, action_space, dueling, noisy, num_atoms, keywords: see `DQN`.
        optimizer_kwargs: see `Policy`; the default is the paper's ε of Adam.
        reward_filter: see `Policy`; "return_std" keeps values within the support for rewards of any scale.
    """

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        dueling: bool = True,
        noisy: bool = True,
        num_atoms: Atoms = 51,
        optimizer_kwargs: Mapping[str, Any] | None = ADAM,
        reward_filter: RewardFilterName = "return_std",
        **keywords: Any,
    ) -> None:
        super().__init__(
            observation_space,
            action_space,
            dueling=dueling,
            noisy=noisy,
            num_atoms=num_atoms,
            optimizer_kwargs=optimizer_kwargs,
            reward_filter=reward_filter,
            **keywords,
        )
