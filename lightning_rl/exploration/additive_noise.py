"""Base class of strategies that add noise to continuous actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Generator, Tensor

from lightning_rl.exploration.exploration import Choice, Exploration, require_box_actions
from lightning_rl.exploration.falling import TENTH, falling
from lightning_rl.exploration.random_actions import LOG_2PI
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.schedules import schedule_value, to_env_steps
from lightning_rl.schema.ranges import NonNegative, NonNegativeSchedule, WholeEnvSteps
from lightning_rl.spaces import leaf_spaces, leaf_values, pack_leaves

__all__ = ["AdditiveNoise", "normal_logp"]


class AdditiveNoise(Exploration):
    """The best action plus noise, clipped to the policy's space; a subclass defines `noise`.

    Args:
        action_space: float Boxes, or a nested space of float Boxes.
        random_timesteps: env steps before which actions are uniformly random.
        initial_scale: initial scale of the noise.
        final_scale: scale from `scale_timesteps` env steps on, after linear interpolation.
        scale_timesteps: env steps over which the scale changes; a fraction such as "10%" refers to a run's
            `total_env_steps`, or to 100,000 outside of a run.
        scale_schedule: a schedule for the scale over env steps, which replaces these three.

    Attributes:
        low, high: bounds of all action entries, `[A]`, in the order of the space's leaves; infinite for unbounded
            entries.

    Raises:
        UnsupportedSpaceError: a part of the actions is discrete.
        ConfigError: a scale is negative.
    """

    low: Tensor
    high: Tensor

    def __init__(
        self,
        action_space: Space[Any],
        random_timesteps: WholeEnvSteps = 1000,
        initial_scale: NonNegative = 1.0,
        final_scale: NonNegative = 0.02,
        scale_timesteps: WholeEnvSteps = TENTH,
        scale_schedule: NonNegativeSchedule | None = None,
    ) -> None:
        super().__init__(action_space)
        require_box_actions(type(self).__name__, action_space)
        self.random_timesteps = to_env_steps(random_timesteps)
        self.scale_schedule = falling(scale_schedule, initial_scale, final_scale, scale_timesteps)
        boxes = [leaf for _, leaf in leaf_spaces(action_space) if isinstance(leaf, spaces.Box)]
        for name, bounds in (("low", [box.low for box in boxes]), ("high", [box.high for box in boxes])):
            entries = np.concatenate([bound.ravel() for bound in bounds]).astype(np.float32)
            self.register_buffer(name, torch.from_numpy(entries), persistent=False)
        self._sizes = [int(np.prod(box.shape)) for box in boxes]

    def noise(self, rows: int, scale: float, generator: Generator | None) -> tuple[Tensor, Tensor]:
        """Noise `[N, A]` for the next step in the policy's units, and its log density `[N]`."""
        raise NotImplementedError  # abstract

    def scale(self, timestep: int) -> float:
        """Factor of the noise after `timestep` environment steps."""
        return schedule_value(self.scale_schedule, timestep)

    def choose(self, dist: ActionDistribution, timestep: int, generator: Generator | None, logp: bool) -> Choice:
        """Noisy actions, with the log density of their noise before clipping; 0 if the scale is 0."""
        leaves = leaf_values(self.action_space, dist.deterministic_sample())
        rows = len(leaves[0])
        noise, density = self.noise(rows, self.scale(timestep), generator)
        flat = torch.cat([leaf.reshape(rows, -1) for leaf in leaves], dim=1) + noise
        parts = torch.minimum(torch.maximum(flat, self.low), self.high).split(self._sizes, dim=1)
        shaped = [part.view(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
        return pack_leaves(self.action_space, iter(shaped)), density

    def info(self, timestep: int) -> dict[str, float]:
        """The scale, for logging."""
        return {"scale": self.scale(timestep)}


def normal_logp(standardized: Tensor, deviation: Tensor) -> Tensor:
    """Σ log N(z σ; 0, σ²) over the entries, `[N]`; 0 for entries with σ = 0, for which no noise was drawn.

    Args:
        standardized: z, `[N, A]`.
        deviation: σ, `[A]`.
    """
    density = -0.5 * (standardized.square() + LOG_2PI) - deviation.clamp(min=1e-30).log()
    return torch.where(deviation > 0, density, 0.0).sum(1)
