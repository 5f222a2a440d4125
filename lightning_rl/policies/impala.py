"""Importance-weighted actor-learner architecture: learns from fragments that are a few policy updates old."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
import torch.nn.functional as F
from torch import Tensor

from lightning_rl.fast_torch import in_eval_mode
from lightning_rl.learning.metrics import Metrics, mean_entropy
from lightning_rl.losses.policy_gradient import approx_kl, policy_gradient
from lightning_rl.losses.value import explained_variance
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.models.filters import RewardFilterName
from lightning_rl.policies.advantages import correct_by_vtrace, standardize_over_ranks, vtrace_rows
from lightning_rl.policies.policy import Policy
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schedules import schedule_value
from lightning_rl.schema.ranges import (
    Coefficient,
    CoefficientSchedule,
    Count,
    LearningRate,
    Passes,
    Positive,
    Probability,
)

__all__ = ["IMPALA"]


class IMPALA(Policy):
    """Actor-critic with V-trace, for asynchronously collected experience. Espeholt et al. 2018, arXiv:1802.01561.

    Targets and advantages are recomputed before each pass over a batch, with the current policy and values; each
    gradient step weights the advantages with its current ratio π/μ.

    Args:
        observation_space, action_space: the spaces of a single environment.
        clip_rho: ρ̄, upper limit of the ratio π/μ in the TD errors; it determines for which policy between μ and π the
            values are learned.
        clip_c: c̄, upper limit of the ratio that weights later TD errors.
        clip_pg_rho: ρ̄ of the policy gradient.
        vtrace_lambda: λ in [0, 1], a factor of c̄.
        passes: passes over each batch.
        minibatches: number of minibatches per pass, equal on every rank; `None`: chosen so that each has about 64 rows.
        standardize_advantages: standardize advantages over each minibatch, to mean 0 and standard deviation 1.
        value_coef: weight of the value loss ½ (V − v)².
        entropy_coef: weight of the entropy bonus; a number or a schedule over env steps, like `lr`.
        lr, max_grad_norm, keywords: arguments of `Policy`: model, exploration, gamma, optimizer, optimizer_kwargs,
            observation_filter, actions, custom_losses, seed.
        reward_filter: see `Policy`; with "return_std", values refer to scaled rewards.

    Raises:
        ConfigError: a number is out of range.
    """

    data = "async"
    supports_recurrent = True
    uses_every_parameter = True
    # No clip holds the policy near the one that acted: see `A2C`.
    free_log_std = True

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        clip_rho: Positive = 1.0,
        clip_c: Positive = 1.0,
        clip_pg_rho: Positive = 1.0,
        vtrace_lambda: Probability = 1.0,
        passes: Passes = 1,
        minibatches: Count | None = 1,
        standardize_advantages: bool = True,
        value_coef: Coefficient = 0.5,
        entropy_coef: CoefficientSchedule = 0.0,
        lr: LearningRate = 4e-3,
        max_grad_norm: Positive | None = 0.5,
        reward_filter: RewardFilterName = "return_std",
        **keywords: Any,
    ) -> None:
        super().__init__(
            observation_space, action_space, lr=lr, max_grad_norm=max_grad_norm, reward_filter=reward_filter, **keywords
        )
        self.clips = {"clip_rho": clip_rho, "clip_c": clip_c, "lam": vtrace_lambda}
        self.clip_pg_rho, self.standardize_advantages = clip_pg_rho, standardize_advantages
        self.passes, self.minibatches = passes, minibatches
        self.value_coef, self.entropy_coef = value_coef, entropy_coef

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        """Add advantages and value targets by V-trace."""
        return vtrace_rows(self, batch, self.logp_and_values, **self.clips)

    @torch.no_grad()
    def before_next_sweep(self, rows: SampleBatch, fragment: SampleBatch) -> None:
        """Compute targets and advantages again for the current policy: no clip holds it near the old one."""
        if "place" in rows:  # the rows come from this class's `postprocess_trajectory`, not from an override
            correct_by_vtrace(self, rows, fragment, self.logp_and_values, **self.clips)

    @torch.no_grad()
    def logp_and_values(self, rows: SampleBatch) -> tuple[Tensor, Tensor]:
        """Log π(a|s) and V(s) of the rows, `[N]` each, for the policy that V-trace corrects for."""
        with in_eval_mode(self):
            dist, values = self.distribution_and_values(rows)
        return dist.logp(rows.actions), values

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """Policy gradient with V-trace's advantages, squared error of the values from its targets, entropy bonus."""
        dist, values = self.distribution_and_values(batch)
        logp = dist.logp(batch.actions)
        policy_loss = policy_gradient(logp, self.weight_advantages(batch, logp.detach()))
        loss, metrics = self.actor_critic_loss(policy_loss, dist, values, batch.value_targets)
        if self.log_extra:
            metrics["approx_kl"] = approx_kl(logp, batch.action_logp)
        return loss, metrics

    def weight_advantages(self, batch: SampleBatch, logp: Tensor) -> Tensor:
        """The weighted advantages min(ρ̄, π/μ) A `[N]`; `logp [N]` is log π(a|s)."""
        advantages = (logp - batch.action_logp).exp().clamp(max=self.clip_pg_rho) * batch.advantages
        return standardize_over_ranks(self, advantages) if self.standardize_advantages else advantages

    def actor_critic_loss(
        self, policy_loss: Tensor, dist: ActionDistribution, values: Tensor, targets: Tensor
    ) -> tuple[Tensor, Metrics]:
        """`policy_loss` with the value loss and the entropy bonus, and the metrics of all three."""
        value_loss = 0.5 * F.mse_loss(values, targets)
        entropy_coef = schedule_value(self.entropy_coef, self.env_steps)
        entropy = mean_entropy(dist, entropy_coef)
        loss = policy_loss + self.value_coef * value_loss
        loss = loss - entropy_coef * entropy if entropy_coef else loss
        metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        if self.log_extra:
            metrics["explained_variance"] = explained_variance(values.detach(), targets)
        return loss, metrics
