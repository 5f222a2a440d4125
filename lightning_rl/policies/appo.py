"""Asynchronous PPO: the clipped surrogate on V-trace's advantages, anchored at a target network."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.fast_torch import in_eval_mode
from lightning_rl.learning.metrics import Metrics
from lightning_rl.losses.policy_gradient import approx_kl, clip_fraction, clipped_surrogate
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.policies.impala import IMPALA
from lightning_rl.policies.kl import adapt_kl_coef, mean_kl
from lightning_rl.policies.targets import PolyakUpdate, target_copy
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schedules import schedule_value
from lightning_rl.schema.ranges import (
    Coefficient,
    Count,
    LearningRate,
    NonNegativeSchedule,
    Passes,
    Portion,
    Positive,
    Probability,
)

__all__ = ["APPO"]

MAX_TARGET_RATIO = 2.0  # ρ of IMPACT: the bound of μ(a|s)/π_target(a|s)


class APPO(IMPALA):
    """PPO on asynchronously collected fragments. Luo et al. 2020 (IMPACT), arXiv:1912.00167; like RLlib's APPO.

    The ratio is clipped around a slowly updated target network instead of the policy that acted, so fragments of
    several policy versions share one reference. By default the target network is constant within a batch.

    Args:
        observation_space, action_space, vtrace_lambda, passes, minibatches, keywords: see `IMPALA`.
        lr: see `Policy`.
        clip: ε, half-width of the interval around ratio 1; a number or a schedule over env steps, like `lr`.
        kl_coef: initial coefficient of the adaptive penalty on KL(π_target‖π); 0 disables it.
        kl_target: target for KL(π_target‖π); `kl_coef` grows by half above 2 × `kl_target`, and halves below ½ ×.
        target_update_interval: gradient steps between updates of the target network; `None`: once per batch, after all
            its passes.
        tau: update rate τ of θ_target ← τ θ + (1 − τ) θ_target, in (0, 1]; 1 copies.

    Raises:
        ConfigError: a number is out of range, or `kl_coef` penalizes a distance that is 0 in every gradient step.
    """

    kl_coef: Tensor

    uses_every_parameter = True
    free_log_std = False  # the clip bounds what a step does to them, as in PPO

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        vtrace_lambda: Probability = 0.95,
        passes: Passes = 10,
        minibatches: Count | None = None,
        clip: NonNegativeSchedule = 0.2,
        kl_coef: Coefficient = 0.0,
        kl_target: Positive = 0.01,
        target_update_interval: Count | None = None,
        tau: Portion = 1.0,
        lr: LearningRate = 1e-3,
        **keywords: Any,
    ) -> None:
        super().__init__(
            observation_space,
            action_space,
            vtrace_lambda=vtrace_lambda,
            passes=passes,
            minibatches=minibatches,
            lr=lr,
            **keywords,
        )
        one_step = self.passes == self.minibatches == tau == 1
        if kl_coef > 0 and one_step and target_update_interval in (None, 1):
            raise ConfigError(
                f"policy.kl_coef={kl_coef}: the target network is the policy again before every gradient step "
                f"(policy.passes=1, minibatches=1, target_update_interval={target_update_interval}, tau=1), so "
                "KL(π_target‖π) and its gradient are always 0: raise passes, minibatches or target_update_interval, "
                "lower tau, or set kl_coef=0"
            )
        self.clip, self.kl_target, self.has_kl_penalty = clip, kl_target, kl_coef > 0
        self.target_update_interval, self.tau = target_update_interval, tau
        self.register_buffer("kl_coef", torch.tensor(float(kl_coef)))
        self.target_model = target_copy(self.model)
        self._polyak_update = PolyakUpdate(self.target_model, self.model)

    @torch.no_grad()
    def logp_and_values(self, rows: SampleBatch) -> tuple[Tensor, Tensor]:
        """Log π_target(a|s) and V(s) of the rows, `[N]` each.

        Sets the column "target_logp" and, for the KL penalty, "target_dist_inputs".
        """
        with in_eval_mode(self):
            outputs, mask, _ = self.outputs_of(rows, self.target_model)
            rows["target_logp"] = self.dist_class(outputs, self.target_model, mask).logp(rows.actions)
            if self.has_kl_penalty:
                rows["target_dist_inputs"] = outputs
            return rows.target_logp, self.distribution_and_values(rows)[1]

    def before_next_sweep(self, rows: SampleBatch, fragment: SampleBatch) -> None:
        """Keep the advantages, as PPO does: the clip holds the policy near the target network."""

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """Clipped surrogate of π/π_target, value error, entropy bonus, and the KL penalty if there is one."""
        dist, values = self.distribution_and_values(batch)
        logp = dist.logp(batch.actions)
        advantages = self.weight_advantages(batch, batch.target_logp)

        # IMPACT's ratio min(μ/π_target, ρ) · π/μ is π/max(π_target, μ/ρ).
        anchor = torch.maximum(batch.target_logp, batch.action_logp - math.log(MAX_TARGET_RATIO))
        clip = schedule_value(self.clip, self.env_steps)
        policy_loss = clipped_surrogate(logp, anchor, advantages, clip)
        loss, metrics = self.actor_critic_loss(policy_loss, dist, values, batch.value_targets)
        if self.log_extra:
            metrics["approx_kl"] = approx_kl(logp, batch.action_logp)
            metrics["clip_fraction"] = clip_fraction(logp, anchor, clip)
        if self.has_kl_penalty:
            kl = self.target_distribution(batch).kl(dist).mean()
            loss = loss + self.kl_coef * kl
            metrics |= {"kl": kl, "kl_coef": self.kl_coef}
        return loss, metrics

    def target_distribution(self, rows: SampleBatch) -> ActionDistribution:
        """The rows' action distribution under the target network at the start of the batch."""
        return self.dist_class(rows.target_dist_inputs, self.target_model, self.mask_of(rows))

    def batch_metrics(self, rows: SampleBatch) -> dict[str, float]:
        """With a penalty, "kl" after the batch's last gradient step, in place of the mean over the steps."""
        return {"kl": mean_kl(self, rows, self.target_distribution)} if self.has_kl_penalty else {}

    def after_step(self) -> None:
        """Update the target network every `target_update_interval` gradient steps."""
        if self.target_update_interval is not None and self.gradient_steps % self.target_update_interval == 0:
            self._polyak_update(self.tau)

    def after_iteration(self, metrics: dict[str, float]) -> None:
        """Update the target network if it is updated once a batch; adapt `kl_coef`."""
        if self.target_update_interval is None:
            self._polyak_update(self.tau)
        if self.has_kl_penalty:
            adapt_kl_coef(self, metrics["kl"])
