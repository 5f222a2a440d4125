"""Samples actions from the policy's distribution, the default of on-policy algorithms."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import Space
from torch import Tensor

from lightning_rl.exploration.exploration import Exploration
from lightning_rl.exploration.random import random_actions
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.schedules import to_env_steps
from lightning_rl.schema.ranges import WholeEnvSteps

__all__ = ["StochasticSampling"]


class StochasticSampling(Exploration):
    """Samples from the action distribution.

    Args:
        action_space: as `Exploration`.
        random_timesteps: before this many environment steps, actions are uniformly random instead, with their true
            log-probability (a wrong one would make the importance ratios of the first update explode).
    """

    def __init__(self, action_space: Space[Any], random_timesteps: WholeEnvSteps = 0) -> None:
        super().__init__(action_space)
        self.random_timesteps = to_env_steps(random_timesteps)

    def get_exploration_action(
        self, dist: ActionDistribution, *, timestep: int, explore: bool, generator: torch.Generator | None = None
    ) -> tuple[Any, Tensor]:
        """A sample; the likeliest action with `explore=False`."""
        if explore and timestep < self.random_timesteps:
            return random_actions(self.action_space, dist, generator)
        actions = dist.sample(generator) if explore else dist.deterministic_sample()
        return actions, dist.sampled_action_logp()

    def get_action(
        self, dist: ActionDistribution, *, timestep: int, explore: bool, generator: torch.Generator | None = None
    ) -> Any:
        """The same without log-probabilities; a density after tanh costs more than the sample itself."""
        if explore and timestep < self.random_timesteps:
            return random_actions(self.action_space, dist, generator)[0]
        return dist.sample(generator) if explore else dist.deterministic_sample()
