"""Imitation weighted by advantages."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from lightning_rl.distributed import moments_over_ranks
from lightning_rl.learning.metrics import Metrics, mean_entropy
from lightning_rl.losses.offline import advantage_weights
from lightning_rl.losses.policy_gradient import policy_gradient
from lightning_rl.losses.value import explained_variance
from lightning_rl.models.filters import RewardFilterName
from lightning_rl.policies.advantages import advantage_rows
from lightning_rl.policies.bc import with_initial_states
from lightning_rl.policies.policy import Policy
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Coefficient, Count, LearningRate, NonNegative, Passes, Portion, Positive

__all__ = ["MARWIL"]


class MARWIL(Policy):
    """Behavior cloning weighted by exp(β A / c), with the advantage A of the recorded return.

    Wang et al. 2018, "Exponentially weighted imitation learning for batched historical data", NeurIPS. The scale c is
    a moving root mean square of advantages.

    Args:
        observation_space, action_space: the spaces of a single environment.
        beta: β ≥ 0; 0 imitates all actions equally, like `BC`.
        max_weight: upper limit of a row's weight.
        value_coef: weight of the value loss.
        norm_start: initial c², > 0, in units of the squared filtered return.
        norm_rate: weight of each minibatch's mean A² in the moving average c², in (0, 1].
        passes: passes over the rows of an iteration.
        minibatches: number of minibatches per pass; `None`: chosen so that each has about 64 rows.
        lr, keywords: arguments of `Policy`: model, exploration, gamma, optimizer, optimizer_kwargs, max_grad_norm,
            observation_filter, actions, custom_losses, seed.
        reward_filter: see `Policy`; with "return_std", values refer to scaled rewards.
    """

    squared_advantage: Tensor

    data = "offline"
    imitates = True
    supports_recurrent = True
    uses_every_parameter = True
    free_log_std = True

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        beta: NonNegative = 1.0,
        max_weight: Positive = 100.0,
        value_coef: Coefficient = 1.0,
        norm_start: Positive = 1.0,
        norm_rate: Portion = 0.01,
        passes: Passes = 1,
        minibatches: Count | None = None,
        lr: LearningRate = 1e-3,
        reward_filter: RewardFilterName = "return_std",
        **keywords: Any,
    ) -> None:
        super().__init__(observation_space, action_space, lr=lr, reward_filter=reward_filter, **keywords)
        self.beta, self.max_weight, self.value_coef, self.norm_rate = beta, max_weight, value_coef, norm_rate
        self.passes, self.minibatches = passes, minibatches
        self.register_buffer("squared_advantage", torch.tensor(float(norm_start)))

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        """Add the return from each step on as `value_targets`; V(s) stands for what a cut leaves out."""
        return advantage_rows(self, with_initial_states(self, batch), lam=1.0)

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """−mean exp(β A / c) log π(a|s) + value_coef · ½ mean A², A = G − V(s)."""
        dist, values = self.distribution_and_values(batch)
        advantages = batch.value_targets - values
        weights = advantage_weights(advantages, self.beta / self.update_scale(advantages.detach()), self.max_weight)
        policy_loss = policy_gradient(dist.logp(batch.actions), weights)
        value_loss = 0.5 * advantages.square().mean()
        metrics = {"policy_loss": policy_loss, "value_loss": value_loss}
        if self.log_extra:
            metrics["entropy"] = mean_entropy(dist, 0.0)
        return policy_loss + self.value_coef * value_loss, metrics

    def update_scale(self, advantages: Tensor) -> Tensor:
        """The moving root mean square c, a scalar, after these advantages `[N]`, and those of other ranks."""
        moments = moments_over_ranks(advantages) if self.in_trainer else None
        square = advantages.square().mean() if moments is None else moments[0].square() + moments[1].square()
        return self.squared_advantage.lerp_(square, self.norm_rate).sqrt()

    def batch_metrics(self, rows: SampleBatch) -> dict[str, float]:
        """The share of the returns' variance that the values explained before this iteration."""
        return {"explained_variance": float(explained_variance(rows.vf_preds, rows.value_targets))}
