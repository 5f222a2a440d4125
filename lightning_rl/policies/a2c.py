"""Advantage actor-critic, synchronous."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch.nn.functional as F
from torch import Tensor

from lightning_rl.learning.metrics import Metrics, mean_entropy
from lightning_rl.losses.policy_gradient import policy_gradient
from lightning_rl.losses.value import explained_variance
from lightning_rl.models.central_critic import used_central_obs_size
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.models.filters import RewardFilterName
from lightning_rl.policies.advantages import advantage_rows, cheap_values, standardize_over_ranks
from lightning_rl.policies.policy import Policy
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schedules import schedule_value
from lightning_rl.schema.ranges import (
    Coefficient,
    CoefficientSchedule,
    Count,
    LearningRate,
    Positive,
    Probability,
    Whole,
)

__all__ = ["A2C"]


class A2C(Policy):
    """Advantage actor-critic: one gradient step per rollout. Mnih et al. 2016, arXiv:1602.01783, synchronous.

    Args:
        observation_space, action_space: the spaces of a single environment.
        gae_lambda: λ of the advantage estimate, in [0, 1]; 1 gives the paper's n-step returns.
        microbatches: number of gradient accumulation steps; more steps need less memory.
        value_coef: weight of the value loss.
        entropy_coef: weight of the entropy bonus; a number or a schedule over env steps, like `lr`.
        standardize_advantages: standardize advantages over the rollout, to mean 0 and standard deviation 1.
        central_critic: use a separate critic that reads the central observation (the environment's state, or the
            observations of all agents) and the agent's own; the actor reads only its own (MAA2C, Papoudakis et al.
            2021, arXiv:2006.07869).
        central_obs_size: width of the central observation; set from the environment if it has several agents.
        reward_filter: see `Policy`; with "return_std", values refer to scaled rewards.
        keywords: arguments of `Policy`: model, exploration, gamma, lr, optimizer, optimizer_kwargs, max_grad_norm,
            filters, actions, custom_losses, seed.
    """

    supports_recurrent = True
    uses_every_parameter = True
    # As functions of the observation all weights of their layer move at once in the one step of a rollout, which no
    # clipped ratio limits: deviations collapse or grow without bound, and Pendulum is not learned.
    free_log_std = True

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        gae_lambda: Probability = 1.0,
        microbatches: Count = 1,
        value_coef: Coefficient = 0.5,
        entropy_coef: CoefficientSchedule = 0.0,
        standardize_advantages: bool = True,
        central_critic: bool = False,
        central_obs_size: Whole = 0,
        lr: LearningRate = 4e-3,
        optimizer: str = "adam",
        max_grad_norm: Positive | None = 0.5,
        reward_filter: RewardFilterName = "return_std",
        **keywords: Any,
    ) -> None:
        self.central_obs_size = used_central_obs_size(type(self).__name__, central_critic, central_obs_size)
        super().__init__(
            observation_space,
            action_space,
            lr=lr,
            optimizer=optimizer,
            max_grad_norm=max_grad_norm,
            reward_filter=reward_filter,
            **keywords,
        )
        self.gae_lambda, self.microbatches = gae_lambda, microbatches
        self.value_coef, self.entropy_coef, self.standardize_advantages = (
            value_coef,
            entropy_coef,
            standardize_advantages,
        )

    def extra_action_out(self, outputs: Tensor, dist: ActionDistribution) -> dict[str, Tensor]:
        """Record values where the model computes them at almost no cost."""
        return cheap_values(self)

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        """Add advantages by GAE, standardized over the whole rollout if at all, and value targets."""
        rows = advantage_rows(self, batch, self.gae_lambda)
        if self.standardize_advantages:
            rows["advantages"] = standardize_over_ranks(self, rows.advantages)
        return rows

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """Policy gradient with the advantage, value error, entropy bonus."""
        dist, values = self.distribution_and_values(batch)
        policy_loss = policy_gradient(dist.logp(batch.actions), batch.advantages)
        value_loss = F.mse_loss(values, batch.value_targets)
        entropy_coef = schedule_value(self.entropy_coef, self.env_steps)
        entropy = mean_entropy(dist, entropy_coef)
        loss = policy_loss + self.value_coef * value_loss
        loss = loss - entropy_coef * entropy if entropy_coef else loss
        return loss, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}

    def batch_metrics(self, rows: SampleBatch) -> dict[str, float]:
        """The share of the returns' variance that the values explained before this step."""
        return {"explained_variance": float(explained_variance(rows.vf_preds, rows.value_targets))}
