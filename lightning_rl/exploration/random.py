"""Uniformly random actions among the allowed ones."""

from __future__ import annotations

from torch import Generator

from lightning_rl.exploration.exploration import Choice, Exploration
from lightning_rl.exploration.random_actions import random_actions
from lightning_rl.models.distributions import ActionDistribution

__all__ = ["Random"]


class Random(Exploration):
    """Uniformly random actions; greedy actions with `explore=False`."""

    def choose(self, dist: ActionDistribution, timestep: int, generator: Generator | None, logp: bool) -> Choice:
        """Random actions."""
        return random_actions(self.action_space, dist, generator)
