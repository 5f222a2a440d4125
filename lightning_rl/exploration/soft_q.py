"""Boltzmann exploration: samples actions with probabilities that grow with their Q-values."""

from __future__ import annotations

from typing import Any

from gymnasium import Space
from torch import Generator

from lightning_rl.exploration.exploration import Choice, Exploration, require_discrete_actions
from lightning_rl.models.distributions import ActionDistribution, distribution_class
from lightning_rl.schedules import schedule_value
from lightning_rl.schema.ranges import PositiveSchedule

__all__ = ["SoftQ"]


class SoftQ(Exploration):
    """Samples with probabilities softmax(Q / temperature). Sutton 1990, "Integrated architectures", section 4.

    Args:
        action_space: discrete, or nested of discrete parts.
        temperature: temperature > 0 in units of the Q-values: near 0 greedy, near ∞ uniform; a number or a
            schedule over environment steps.

    Raises:
        UnsupportedSpaceError: a part of the actions is continuous.
        ConfigError: the temperature is not above 0.
    """

    def __init__(self, action_space: Space[Any], temperature: PositiveSchedule = 1.0) -> None:
        super().__init__(action_space)
        require_discrete_actions(type(self).__name__, action_space)
        self.temperature = temperature
        self._distribution = distribution_class(action_space).for_space(action_space)

    def choose(self, dist: ActionDistribution, timestep: int, generator: Generator | None, logp: bool) -> Choice:
        """A sample at the current temperature."""
        # A new tensor: the caller's Q-values must not change.
        soft = self._distribution(dist.inputs / schedule_value(self.temperature, timestep), dist.model, dist.mask)
        return soft.sample(generator), soft.sampled_action_logp()

    def info(self, timestep: int) -> dict[str, float]:
        """The temperature, for logging."""
        return {"temperature": schedule_value(self.temperature, timestep)}
