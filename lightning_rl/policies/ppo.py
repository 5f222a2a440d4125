"""Proximal policy optimization."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import torch
import torch.nn.functional as F
from torch import Tensor

from lightning_rl.distributed import mean_over_ranks
from lightning_rl.learning.metrics import Metrics, mean_entropy
from lightning_rl.losses.policy_gradient import approx_kl, clip_fraction, clipped_surrogate
from lightning_rl.losses.value import clipped_square_error, explained_variance, value_change_clipped_error
from lightning_rl.models.central_critic import used_central_obs_size
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.models.filters import RewardFilterName
from lightning_rl.policies.advantages import advantage_rows, cheap_values, standardize_over_ranks
from lightning_rl.policies.kl import acting_distribution, adapt_kl_coef, mean_kl
from lightning_rl.policies.policy import Policy
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schedules import schedule_value
from lightning_rl.schema.ranges import (
    Coefficient,
    CoefficientSchedule,
    Count,
    LearningRate,
    NonNegativeSchedule,
    Passes,
    Positive,
    Probability,
    Whole,
)

__all__ = ["PPO"]


class PPO(Policy):
    """Proximal policy optimization with a clipped ratio. Schulman et al. 2017, arXiv:1707.06347.

    Args:
        observation_space, action_space: the spaces of a single environment.
        gae_lambda: λ of generalized advantage estimation, in [0, 1].
        clip: ε, half-width of the interval around ratio 1; a number or a schedule over env steps, like `lr`.
        passes: passes over each rollout.
        minibatches: number of minibatches per pass, equal on every rank; `None`: chosen so that each has about 64 rows.
        value_coef: weight of the value loss.
        value_clip: limit of the change of the values (PPO2's form, in units of the filtered return); `None`: no limit.
        value_loss_clip: upper limit of a row's squared error (RLlib's `vf_clip_param`); `None`: no limit.
        entropy_coef: weight of the entropy bonus; a number or a schedule.
        kl_coef: initial coefficient of the adaptive penalty on KL(π_old‖π) (section 4 of the paper); 0 disables it.
        kl_target: target for KL(π_old‖π) after an iteration's last gradient step; `kl_coef` grows by half above 2 ×
            `kl_target`, and halves below ½ ×.
        target_kl: stop an iteration's gradient steps when approx_kl exceeds 1.5 × this; `None`: never.
        standardize_advantages: standardize advantages over each minibatch, to mean 0 and standard deviation 1.
        central_critic: use a separate critic that reads the central observation (the environment's state, or the
            observations of all agents) and the agent's own; the actor reads only its own (MAPPO, Yu et al. 2022,
            arXiv:2103.01955).
        central_obs_size: width of the central observation; set from the environment if it has several agents.
        lr, max_grad_norm, keywords: arguments of `Policy`: model, exploration, gamma, optimizer, optimizer_kwargs,
            observation_filter, actions, custom_losses, seed.
        reward_filter: see `Policy`; with "return_std", values refer to scaled rewards.
    """

    kl_coef: Tensor

    supports_recurrent = True
    uses_every_parameter = True
    free_log_std = True

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        gae_lambda: Probability = 0.95,
        clip: NonNegativeSchedule = 0.2,
        passes: Passes = 10,
        minibatches: Count | None = None,
        value_coef: Coefficient = 0.5,
        value_clip: Positive | None = None,
        value_loss_clip: Positive | None = None,
        entropy_coef: CoefficientSchedule = 0.0,
        kl_coef: Coefficient = 0.0,
        kl_target: Positive = 0.01,
        target_kl: Positive | None = 0.1,
        standardize_advantages: bool = True,
        central_critic: bool = False,
        central_obs_size: Whole = 0,
        lr: LearningRate = 1e-3,
        max_grad_norm: Positive | None = 0.5,
        reward_filter: RewardFilterName = "return_std",
        **keywords: Any,
    ) -> None:
        self.central_obs_size = used_central_obs_size(type(self).__name__, central_critic, central_obs_size)
        super().__init__(
            observation_space, action_space, lr=lr, max_grad_norm=max_grad_norm, reward_filter=reward_filter, **keywords
        )
        self.gae_lambda, self.clip, self.passes, self.minibatches = gae_lambda, clip, passes, minibatches
        self.value_coef, self.value_clip, self.value_loss_clip = value_coef, value_clip, value_loss_clip
        self.entropy_coef, self.kl_target, self.target_kl = entropy_coef, kl_target, target_kl
        self.standardize_advantages = standardize_advantages
        self.has_kl_penalty = kl_coef > 0
        self.register_buffer("kl_coef", torch.tensor(float(kl_coef)))

    def extra_action_out(self, outputs: Tensor, dist: ActionDistribution) -> dict[str, Tensor]:
        """Record values if they cost almost nothing, and for the KL penalty the action distribution's parameters."""
        return {**cheap_values(self), **({"action_dist_inputs": outputs} if self.has_kl_penalty else {})}

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        """Add advantages by GAE and value targets."""
        return advantage_rows(self, batch, self.gae_lambda)

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """Clipped surrogate, value error, entropy bonus (eq. 9), and the KL penalty if there is one (eq. 8)."""
        dist, values = self.distribution_and_values(batch)
        logp = dist.logp(batch.actions)
        advantages = standardize_over_ranks(self, batch.advantages) if self.standardize_advantages else batch.advantages
        clip = schedule_value(self.clip, self.env_steps)

        policy_loss = clipped_surrogate(logp, batch.action_logp, advantages, clip)
        value_loss = self.value_error(values, batch)
        loss = policy_loss + self.value_coef * value_loss
        metrics = {"policy_loss": policy_loss, "value_loss": value_loss}
        entropy_coef = schedule_value(self.entropy_coef, self.env_steps)
        if entropy_coef or self.log_extra:
            metrics["entropy"] = mean_entropy(dist, entropy_coef)
            loss = loss - entropy_coef * metrics["entropy"] if entropy_coef else loss
        if self.log_extra or self.target_kl is not None:
            metrics["approx_kl"] = approx_kl(logp, batch.action_logp)
        if self.log_extra:
            metrics["clip_fraction"] = clip_fraction(logp, batch.action_logp, clip)
        if self.has_kl_penalty:
            kl = acting_distribution(self, batch).kl(dist).mean()
            loss = loss + self.kl_coef * kl
            metrics |= {"kl": kl, "kl_coef": self.kl_coef}
        return loss, metrics

    def value_error(self, values: Tensor, batch: SampleBatch) -> Tensor:
        """Mean squared error of the values, clipped by `value_clip` or `value_loss_clip` if one is set."""
        if self.value_clip is not None:
            return value_change_clipped_error(values, batch.vf_preds, batch.value_targets, self.value_clip)
        if self.value_loss_clip is not None:
            return clipped_square_error(values, batch.value_targets, self.value_loss_clip)
        return F.mse_loss(values, batch.value_targets)

    def keep_learning(self, metrics: Metrics) -> bool:
        """False once approx_kl from the policy that acted exceeds 1.5 × `target_kl`; a loss may do without it."""
        if self.target_kl is None or "approx_kl" not in metrics:
            return True
        return not mean_over_ranks(metrics["approx_kl"]) > 1.5 * self.target_kl  # NaN: the optimizer refuses the step

    def after_iteration(self, metrics: dict[str, float]) -> None:
        """Adapt `kl_coef`."""
        if self.has_kl_penalty:
            adapt_kl_coef(self, metrics["kl"])

    def batch_metrics(self, rows: SampleBatch) -> dict[str, float]:
        """The share of the returns' variance that the values explained before this iteration; with a penalty also "kl".

        "kl" is that of the updated policy (section 4 of the paper), in place of the mean over the gradient steps.
        """
        explained = {"explained_variance": float(explained_variance(rows.vf_preds, rows.value_targets))}
        if not self.has_kl_penalty:
            return explained
        return {**explained, "kl": mean_kl(self, rows, partial(acting_distribution, self))}
