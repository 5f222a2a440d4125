"""Augmented random search."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
from torch import Tensor

from lightning_rl.losses.evolution import random_search_weights
from lightning_rl.policies.evolution import EvolutionStrategy
from lightning_rl.schema.ranges import Count, LearningRate, Positive

__all__ = ["ARS"]


class ARS(EvolutionStrategy):
    """Augmented random search: steps along the best directions. Mania et al. 2018, arXiv:1803.07055.

    A step is divided by the standard deviation of the returns. `observation_filter=mean_std` is V2 of the paper, and
    "none" is V1; the config has the paper's linear policy.

    Args:
        observation_space, action_space: the spaces of a single environment.
        sigma: ν > 0, standard deviation of the perturbations.
        top_directions: number b of directions used for the update, out of those that all ranks tried; `None`: all.
        keywords: arguments of `Policy`: model, exploration, gamma, lr, optimizer, optimizer_kwargs, max_grad_norm,
            filters, actions, custom_losses, seed.
    """

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        sigma: Positive = 0.05,
        top_directions: Count | None = None,
        lr: LearningRate = 0.02,
        optimizer: str = "sgd",
        observation_filter: Literal["none", "mean_std"] = "mean_std",
        **keywords: Any,
    ) -> None:
        super().__init__(
            observation_space,
            action_space,
            sigma=sigma,
            lr=lr,
            optimizer=optimizer,
            observation_filter=observation_filter,
            **keywords,
        )
        self.top_directions = top_directions

    def perturbation_weights(self, returns: Tensor) -> Tensor:
        """Weights `[N]`: differences of the returns of both sides, of the best directions."""
        return random_search_weights(returns, min(self.top_directions or len(returns), len(returns)))
