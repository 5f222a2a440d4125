"""Independent normal noise on the actions, the exploration of TD3."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import Space
from torch import Tensor

from lightning_rl.exploration.additive_noise import AdditiveNoise, normal_logp
from lightning_rl.schedules import EnvSteps, Schedule, Share, to_env_steps
from lightning_rl.schema.ranges import NonNegative, NonNegativeSchedule, WholeEnvSteps

__all__ = ["TENTH", "GaussianNoise", "falling"]

TENTH = Share("10%")


class GaussianNoise(AdditiveNoise):
    """The best action plus N(0, (scale · stddev)²). Fujimoto et al. 2018, arXiv:1802.09477, section 5.

    Args:
        action_space: float Boxes, or nested of them.
        random_timesteps: before this many environment steps, actions are uniformly random instead.
        stddev: deviation in the policy's units, where bounded actions are [−1, 1] (`policy.normalize_actions`).
        initial_scale: of the noise, at the beginning.
        final_scale: after `scale_timesteps` environment steps and later; linear between.
        scale_timesteps: environment steps over which it changes; a share such as "10%" is one of a run's
            `total_env_steps`, or of 100,000 outside of a run.
        scale_schedule: any schedule for the scale over environment steps, instead of these three.

    Raises:
        UnsupportedSpaceError: a part of the actions is discrete.
        ConfigError: a scale is negative.
    """

    def __init__(
        self,
        action_space: Space[Any],
        random_timesteps: WholeEnvSteps = 1000,
        stddev: NonNegative = 0.1,
        initial_scale: NonNegative = 1.0,
        final_scale: NonNegative = 0.02,
        scale_timesteps: WholeEnvSteps = TENTH,
        scale_schedule: NonNegativeSchedule | None = None,
    ) -> None:
        scale = falling(initial_scale, final_scale, scale_timesteps) if scale_schedule is None else scale_schedule
        super().__init__(action_space, random_timesteps, scale)
        self.stddev = stddev

    def noise(self, rows: int, scale: float, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Normal noise, independent in every entry and step."""
        drawn = torch.empty(rows, len(self.low), device=self.low.device).normal_(generator=generator)
        deviation = torch.full_like(self.low, scale * self.stddev)
        return drawn * deviation, normal_logp(drawn, deviation)


def falling(initial: float, final: float, steps: EnvSteps) -> Schedule:
    """The linear schedule for RLlib's three keys of a scale."""
    return {"type": "linear", "initial": initial, "final": final, "steps": max(1, to_env_steps(steps))}
