"""VDN: QMIX whose joint value is the sum of the members' values."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from lightning_rl.policies.qmix import QMIX, Mixer

__all__ = ["VDN"]


class VDN(QMIX):
    """Value decomposition networks: Q_tot is the sum of the members' values. Sunehag et al. 2017, arXiv:1706.05296.

    Args:
        observation_space, action_space, mixer, keywords: see `QMIX`.
    """

    def __init__(
        self, observation_space: gym.Space[Any], action_space: gym.Space[Any], *, mixer: Mixer = "vdn", **keywords: Any
    ) -> None:
        super().__init__(observation_space, action_space, mixer=mixer, **keywords)
