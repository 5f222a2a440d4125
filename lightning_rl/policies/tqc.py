"""SAC with truncated quantile critics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import gymnasium as gym
import torch
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.losses.value import quantile_huber, td_targets
from lightning_rl.models.critics import CriticEnsemble
from lightning_rl.policies.sac import SAC, flat
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Range, Whole

__all__ = ["TQC"]


class TQC(SAC):
    """SAC with truncated quantile critics: targets leave out the highest quantiles of the return.

    Kuznetsov et al. 2020, arXiv:2005.04269.

    Args:
        observation_space, action_space: the spaces of a single environment; actions must be a bounded float Box.
        num_quantiles: number M of quantiles per critic.
        dropped_quantiles: number d of quantiles dropped per critic: targets leave out the d · K highest of all K · M.
        keywords: see `SAC`; with `target_critics`, K is the number of critics in the targets.

    Raises:
        UnsupportedSpaceError: the actions are not a bounded float Box.
        ConfigError: a number is out of range.
    """

    for_discrete = "sac or dqn, or ppo"
    fractions: Tensor

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        num_quantiles: Annotated[int, Range(2, 10_000)] = 25,
        dropped_quantiles: Whole = 2,
        **keywords: Any,
    ) -> None:
        if dropped_quantiles >= num_quantiles:
            raise ConfigError(
                f"policy.dropped_quantiles={dropped_quantiles}; expected fewer than policy.num_quantiles="
                f"{num_quantiles}"
            )
        self.num_quantiles, self.dropped_quantiles = num_quantiles, dropped_quantiles
        super().__init__(observation_space, action_space, **keywords)
        middles = (torch.arange(num_quantiles) + 0.5) / num_quantiles
        self.register_buffer("fractions", middles, persistent=False)

    def make_critic(self, config: Mapping[str, Any], **more: Any) -> CriticEnsemble:
        """Quantiles `[K, N, M]` of Q(s, a)."""
        return super().make_critic(config, outputs=self.num_quantiles, **more)

    def targets(self, batch: SampleBatch, alpha: Tensor) -> Tensor:
        """R + γ (z − α log π) for the quantiles z that are not dropped, `[N, K · (M − d)]`. Equation 11."""
        inputs, dist = self.inputs_and_distribution(batch, following=True)
        inputs["is_training"] = self.target_critic.training
        quantiles = self.select_target_critics(self.target_critic(inputs, flat(dist.rsample())))
        every = quantiles.transpose(0, 1).flatten(1).sort(1).values  # [N, K · M]
        kept = every[:, : every.shape[1] - len(quantiles) * self.dropped_quantiles]
        following = kept - (alpha * dist.sampled_action_logp()).unsqueeze(1)
        return td_targets(batch.rewards, following, batch.terminated, batch.discounts)

    def critic_loss(self, batch: SampleBatch, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The quantile Huber loss of every critic, mean |TD errors| `[N]`, and Q-values `[K, N]`."""
        quantiles = self.critic(self.inputs_of(batch), flat(batch.actions))
        every = quantiles.flatten(0, 1), self.fractions, targets.repeat(self.num_critics, 1)
        errors = quantile_huber(*every).view(self.num_critics, -1) / self.num_quantiles
        weights = batch.get("weights")
        loss = (errors if weights is None else weights * errors).mean(1).sum()
        q_values = quantiles.mean(2)
        return loss, (q_values - targets.mean(1)).abs().mean(0), q_values

    def actor_q_values(self, q_values: Tensor) -> Tensor:
        """The mean of all quantiles, `[K, N, M]` → `[N]`."""
        return q_values.mean((0, 2))
