"""Importance-weighted actor-learner architecture: learns from fragments of policies a few updates old."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import torch.nn.functional as F
from torch import Tensor

from lightning_rl.losses.policy_gradient import approx_kl, policy_gradient
from lightning_rl.losses.value import explained_variance
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.models.filters import RewardFilterName
from lightning_rl.policies.learning import Metrics, mean_entropy
from lightning_rl.policies.policy import Policy
from lightning_rl.policies.traces import following_values, in_traces, vtrace_rows
from lightning_rl.ranges import Count, LearningRate, NonNegative, NonNegativeSchedule, Positive, Probability
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schedules import schedule_value

__all__ = ["IMPALA"]


class IMPALA(Policy):
    """Actor-critic with V-trace, for experience that comes when it is ready. Espeholt et al. 2018, arXiv:1802.01561.

    Targets and advantages are computed anew in every gradient step, by the policy and the values of then.

    Args:
        observation_space, action_space: of one environment.
        clip_rho: ρ̄, up to which the ratio π/μ counts in the targets: how far values are those of π.
        clip_c: c̄, up to which it carries corrections back through time.
        clip_pg_rho: ρ̄ of the policy gradient.
        vtrace_lambda: λ in [0, 1], multiplies c̄.
        passes: sweeps over each batch.
        minibatches: gradient steps per sweep, on whole traces.
        value_coef: weight of the value loss ½ (V − v)².
        entropy_coef: weight of the entropy bonus; a number or a schedule over env steps, as `lr`.
        lr, max_grad_norm, keywords: of `Policy`: model, exploration, gamma, optimizer, optimizer_kwargs,
            observation_filter, actions, custom_losses, seed.
        reward_filter: as `Policy`; with "return_std" values are those of scaled rewards.

    Raises:
        ConfigError: a number is out of range.
    """

    supports_recurrent = True
    uses_every_parameter = True
    learns_in_traces: ClassVar[bool] = True  # a minibatch is made of whole ones

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        clip_rho: Positive = 1.0,
        clip_c: Positive = 1.0,
        clip_pg_rho: Positive = 1.0,
        vtrace_lambda: Probability = 0.95,
        passes: Count = 4,
        minibatches: Count = 4,
        value_coef: NonNegative = 0.5,
        entropy_coef: NonNegativeSchedule = 0.01,
        lr: LearningRate = 7e-4,
        max_grad_norm: Positive | None = 0.5,
        reward_filter: RewardFilterName = "return_std",
        **keywords: Any,
    ) -> None:
        super().__init__(
            observation_space, action_space, lr=lr, max_grad_norm=max_grad_norm, reward_filter=reward_filter, **keywords
        )
        self.clips = {"clip_rho": clip_rho, "clip_c": clip_c, "clip_pg_rho": clip_pg_rho, "lam": vtrace_lambda}
        self.passes, self.minibatches, self.value_coef, self.entropy_coef = (
            passes,
            minibatches,
            value_coef,
            entropy_coef,
        )

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        """The rows `[N, …]` in traces: V-trace itself comes with each gradient step."""
        batch = batch.copy()
        batch["rewards"] = self.normalised_rewards(batch)
        return in_traces(batch, self.max_seq_len if self.is_recurrent else None)

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """Policy gradient with V-trace's advantages, error of the values from its targets, entropy bonus."""
        following = following_values(self, batch)
        dist, values = self.evaluate(batch)
        logp = dist.logp(batch.actions)
        targets, advantages = self.corrected(batch, logp, values, following)
        policy_loss = policy_gradient(logp, advantages)
        loss, metrics = self.with_critic(policy_loss, dist, values, targets)
        if self.diagnosing:
            metrics["approx_kl"] = approx_kl(logp, batch.action_logp)
        return loss, metrics

    def corrected(self, batch: SampleBatch, logp: Tensor, values: Tensor, following: Tensor) -> tuple[Tensor, Tensor]:
        """V-trace targets and advantages `[N]` for the policy that gives `logp [N]` to the actions."""
        log_rhos = logp.detach() - batch.action_logp
        return vtrace_rows(batch, log_rhos, values.detach(), following, self.gamma, **self.clips)

    def with_critic(
        self, policy_loss: Tensor, dist: ActionDistribution, values: Tensor, targets: Tensor
    ) -> tuple[Tensor, Metrics]:
        """`policy_loss` with the value loss and the entropy bonus, and the metrics of all three."""
        value_loss = 0.5 * F.mse_loss(values, targets)
        entropy_coef = schedule_value(self.entropy_coef, self.env_steps)
        entropy = mean_entropy(dist, entropy_coef)
        loss = policy_loss + self.value_coef * value_loss
        loss = loss - entropy_coef * entropy if entropy_coef else loss
        metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        if self.diagnosing:
            metrics["explained_variance"] = explained_variance(values.detach(), targets)
        return loss, metrics
