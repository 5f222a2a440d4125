"""The exploration strategy of a policy of several whose own config has `explore` False."""

from __future__ import annotations

from typing import Any

from torch import Generator, Tensor

from lightning_rl.exploration import Exploration
from lightning_rl.models.distributions import ActionDistribution

__all__ = ["NoExploration"]


class NoExploration(Exploration):
    """Takes the best action, where other policies of a worker explore as well."""

    def get_exploration_action(
        self, dist: ActionDistribution, *, timestep: int, explore: bool, generator: Generator | None = None
    ) -> tuple[Any, Tensor]:
        """The best actions `[N, …]`, with their log-probability (density) `[N]`, whatever `explore` is."""
        return dist.deterministic_sample(), dist.sampled_action_logp()
