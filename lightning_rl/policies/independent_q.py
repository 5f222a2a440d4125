"""Independent Q-learning: each member of a group learns by itself from the group's reward."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from lightning_rl.policies.qmix import QMIX, Mixer

__all__ = ["IndependentQ"]


class IndependentQ(QMIX):
    """Independent Q-learning (IQL): agents share a network but learn independently. Tan 1993, ICML.

    Args:
        observation_space, action_space, mixer, keywords: see `QMIX`.
    """

    def __init__(
        self, observation_space: gym.Space[Any], action_space: gym.Space[Any], *, mixer: Mixer = "none", **keywords: Any
    ) -> None:
        super().__init__(observation_space, action_space, mixer=mixer, **keywords)
