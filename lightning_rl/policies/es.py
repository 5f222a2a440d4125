"""Evolution strategies."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
from torch import Tensor

from lightning_rl.learning.metrics import Metrics
from lightning_rl.losses.evolution import evolution_weights
from lightning_rl.policies.evolution import EvolutionStrategy
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import LearningRate, NonNegative, Positive

__all__ = ["ES"]


class ES(EvolutionStrategy):
    """Evolution strategies: steps along perturbations, weighted by ranks. Salimans et al. 2017, arXiv:1703.03864.

    Args:
        observation_space, action_space: the spaces of a single environment.
        sigma: standard deviation σ > 0 of the perturbations.
        weight_decay: λ of the term λ/2σ ‖θ‖² in the loss, relative to the gradient before its division by σ, like
            `l2_coeff` in the authors' program and in RLlib.
        keywords: arguments of `Policy`: model, exploration, gamma, lr, optimizer, optimizer_kwargs, max_grad_norm,
            filters, actions, custom_losses, seed.
    """

    uses_every_parameter = True

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        sigma: Positive = 0.02,
        weight_decay: NonNegative = 0.005,
        lr: LearningRate = 0.01,
        observation_filter: Literal["none", "mean_std"] = "mean_std",
        **keywords: Any,
    ) -> None:
        super().__init__(
            observation_space, action_space, sigma=sigma, lr=lr, observation_filter=observation_filter, **keywords
        )
        self.weight_decay = weight_decay

    def perturbation_weights(self, returns: Tensor) -> Tensor:
        """Weights `[N]` by centered ranks, which do not depend on the scale of the returns."""
        return evolution_weights(returns, self.sigma)

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """The loss whose gradient is the estimated ES gradient, plus weight decay."""
        loss, metrics = super().loss(batch)
        decay = 0.5 * self.weight_decay / self.sigma
        return loss + decay * sum(p.square().sum() for p in self.evolved_parameters()), metrics
