"""SAC without target networks: batch normalization of the rows and their successors together takes their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium as gym
import torch
from torch import Tensor

from lightning_rl.losses.actor_critic import critic_error, soft_values
from lightning_rl.losses.value import td_targets
from lightning_rl.models import Model
from lightning_rl.models.batch_norm import BatchNorm
from lightning_rl.models.critics import CriticEnsemble
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.models.model import InputDict
from lightning_rl.models.previous_step import previous_columns
from lightning_rl.policies.sac import SAC, flat
from lightning_rl.policies.targets import resting
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Count, Whole, Width

__all__ = ["CrossQ"]


class CrossQ(SAC):
    """SAC without target networks, with wide, batch-normalized critics. Bhatt et al. 2024, arXiv:1902.05605.

    A gradient step normalizes (s, a) and (s', a') by their joint statistics, separately on each rank.

    Args:
        observation_space, action_space: the spaces of a single environment; actions must be a bounded float Box.
        critic_hiddens: see `SAC`; the paper uses layers of 2048.
        policy_delay: gradient steps of the critics per update of the actor and the temperature.
        renorm_after: gradient steps after which batch renormalization (arXiv:1702.03275) replaces batch normalization;
            `None`: never.
        tau, target_update_interval, target_critics: must be `None`, because there are no target critics.
        keywords: see `SAC`; `model.batch_norm=null` means "after".

    Raises:
        UnsupportedSpaceError: the actions are not a bounded float Box.
        ConfigError: a keyword is out of range.
    """

    for_discrete = "sac or dqn, or ppo"
    batch_norm: ClassVar[str] = "after"  # what `model.batch_norm=null` means

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        critic_hiddens: Sequence[Width] | None = (512, 512),
        policy_delay: Count = 3,
        renorm_after: Whole | None = 100_000,
        tau: None = None,
        target_update_interval: None = None,
        target_critics: None = None,
        **keywords: Any,
    ) -> None:
        self.policy_delay, self.renorm_after = policy_delay, renorm_after
        super().__init__(observation_space, action_space, critic_hiddens=critic_hiddens, **keywords)
        self._batch_norms = [module for module in self.modules() if isinstance(module, BatchNorm)]

    def make_model_and_action_dist(self, model: Mapping[str, Any] | None) -> tuple[Model, DistFactory]:
        """As `SAC`, with batch normalization; a custom model has its own layers."""
        options = dict(model or {})
        if not options.get("custom_model"):
            options["batch_norm"] = options.get("batch_norm") or self.batch_norm
        return super().make_model_and_action_dist(options)

    def make_critic(self, config: Mapping[str, Any], **more: Any) -> CriticEnsemble:
        """As `SAC`, with batch normalization."""
        return super().make_critic({**config, "batch_norm": config.get("batch_norm") or self.batch_norm}, **more)

    def make_target_critic(self) -> None:
        """There is none."""

    # -- learning ------------------------------------------------------------------------------------------------------
    def loss_of_critics(self, batch: SampleBatch, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The critics' error, the mean |TD error| of each row `[N]`, and their Q-values `[K, N]`."""
        inputs, actions, next_logp = self.joint_inputs(batch)
        q_values, following = self.critic(inputs, actions).chunk(2, dim=1)
        values = soft_values(following.detach().amin(0), next_logp, alpha)
        targets = td_targets(batch.rewards, values, batch.terminated, batch.discounts)
        return critic_error(q_values, targets, batch.get("weights")), (q_values - targets).abs().mean(0), q_values

    @torch.no_grad()
    def joint_inputs(self, batch: SampleBatch) -> tuple[InputDict, Tensor, Tensor]:
        """The rows with their actions and then the next ones with the actor's, `[2N, …]`, and log π(a'|s') `[N]`."""
        renormalizes = self.renorm_after is not None and self.gradient_steps >= self.renorm_after
        for norm in self._batch_norms:
            norm.renormalizes = renormalizes
        with resting(self.model):
            _, dist = self.inputs_and_distribution(batch, following=True)
        next_actions = flat(dist.rsample())
        names = ["obs", *previous_columns(self.model)]
        halves = [SampleBatch({name: batch[f"{prefix}{name}"] for name in names}) for prefix in ("", "next_")]
        inputs = self.inputs_of(SampleBatch.concat_samples(halves))
        return inputs, torch.cat([flat(batch.actions), next_actions]), dist.sampled_action_logp()

    def policy_loss(self, batch: SampleBatch, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """As `SAC`, by the critics' running statistics."""
        with resting(self.critic):
            return super().policy_loss(batch, alpha)

    def after_step(self) -> None:
        """Update nothing: this algorithm has no target critics."""
