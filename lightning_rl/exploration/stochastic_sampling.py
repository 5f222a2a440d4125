"""Samples actions from the policy's distribution, the default of on-policy algorithms."""

from __future__ import annotations

from typing import Any

from gymnasium import Space
from torch import Generator

from lightning_rl.exploration.exploration import Choice, Exploration
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.schedules import to_env_steps
from lightning_rl.schema.ranges import WholeEnvSteps

__all__ = ["StochasticSampling"]


class StochasticSampling(Exploration):
    """Samples from the action distribution.

    Args:
        action_space: see `Exploration`.
        random_timesteps: env steps before which actions are uniformly random, with their exact log-probability (a wrong
            one would make the importance ratios of the first update explode).
    """

    def __init__(self, action_space: Space[Any], random_timesteps: WholeEnvSteps = 0) -> None:
        super().__init__(action_space)
        self.random_timesteps = to_env_steps(random_timesteps)

    def choose(self, dist: ActionDistribution, timestep: int, generator: Generator | None, logp: bool) -> Choice:
        """A sample; its log-probability is left out if it is not needed: a density after tanh costs more."""
        return dist.sample(generator), dist.sampled_action_logp() if logp else None
