"""Independent normal noise on the actions, the exploration of TD3."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import Space
from torch import Generator, Tensor

from lightning_rl.exploration.additive_noise import AdditiveNoise, normal_logp
from lightning_rl.schema.ranges import NonNegative, WholeEnvSteps

__all__ = ["GaussianNoise"]


class GaussianNoise(AdditiveNoise):
    """The greedy action plus N(0, (scale · stddev)²). Fujimoto et al. 2018, arXiv:1802.09477, section 5.

    Args:
        action_space: float Boxes, or a nested space of float Boxes.
        random_timesteps: env steps before which actions are uniformly random.
        stddev: standard deviation in the policy's units, where bounded actions are in [−1, 1]
            (`policy.normalize_actions`).
        keywords: see `AdditiveNoise`.

    Raises:
        UnsupportedSpaceError: a part of the actions is discrete.
        ConfigError: a scale is negative.
    """

    def __init__(
        self,
        action_space: Space[Any],
        random_timesteps: WholeEnvSteps = 1000,
        stddev: NonNegative = 0.1,
        **keywords: Any,
    ) -> None:
        super().__init__(action_space, random_timesteps, **keywords)
        self.stddev = stddev

    def noise(self, rows: int, scale: float, generator: Generator | None) -> tuple[Tensor, Tensor]:
        """Normal noise, independent in every entry and step."""
        drawn = torch.empty(rows, len(self.low), device=self.low.device).normal_(generator=generator)
        deviation = torch.full_like(self.low, scale * self.stddev)
        return drawn * deviation, normal_logp(drawn, deviation)
