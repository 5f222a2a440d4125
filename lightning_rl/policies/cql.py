"""SAC with conservative critics, for recorded data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from lightning_rl.learning.metrics import Metrics
from lightning_rl.losses.offline import conservative_gap
from lightning_rl.policies.sac import SAC
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Count, LearningRate, Positive, Whole

__all__ = ["CQL"]


class CQL(SAC):
    """Conservative Q-learning: SAC whose critics lower Q-values of sampled actions and raise those of recorded ones.

    Kumar et al. 2020, arXiv:2006.04779, CQL(H).

    Args:
        observation_space, action_space: the spaces of a single environment; actions must be a bounded float Box.
        min_q_weight: weight of the gap between the Q-values of sampled and recorded actions, relative to half the
            squared TD error; with `lagrangian`, its initial value.
        num_actions: number of actions sampled for each row, from each of the uniform distribution, π(s), and π(s').
        temperature: T of the soft maximum over the sampled actions, in units of the return.
        lagrangian: learn the weight such that the gap approaches `lagrangian_thresh`.
        lagrangian_thresh: target for the gap, in units of the return.
        bc_iters: initial gradient steps in which the actor clones the recorded actions.
        lr, optimizer_kwargs: see `Policy`.
        backup_entropy, keywords: see `SAC`.

    Raises:
        UnsupportedSpaceError: the actions are not a bounded float Box.
        ConfigError: a number is out of range.
    """

    for_discrete = "discrete_cql or iql, or ppo"

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        min_q_weight: Positive = 5.0,
        num_actions: Count = 10,
        temperature: Positive = 1.0,
        lagrangian: bool = False,
        lagrangian_thresh: float = 5.0,
        bc_iters: Whole = 0,
        backup_entropy: bool | None = False,
        lr: LearningRate = 3e-4,
        optimizer_kwargs: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        own = {"backup_entropy": backup_entropy, "lr": lr, "optimizer_kwargs": optimizer_kwargs}
        super().__init__(observation_space, action_space, **own, **keywords)
        self.num_actions, self.temperature, self.bc_iters = num_actions, temperature, bc_iters
        self.lagrangian_thresh = lagrangian_thresh if lagrangian else None
        log_weight = torch.tensor(float(min_q_weight)).log()
        self.log_min_q_weight = nn.Parameter(log_weight, requires_grad=lagrangian)

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """SAC's loss, plus the weighted gap."""
        sac_loss, metrics = super().loss(batch)
        gaps, weight = self.conservative_gaps(batch), self.log_min_q_weight.exp()
        loss, gap = sac_loss + weight.detach() * gaps.sum(), gaps.detach().mean()
        metrics["conservative_gap"] = gap
        if self.lagrangian_thresh is not None:  # the weight ascends what the critics descend
            loss = loss - weight * (gap - self.lagrangian_thresh)
            metrics["min_q_weight"] = weight.detach()
        return loss, metrics

    def conservative_gaps(self, batch: SampleBatch) -> Tensor:
        """The mean gap of each critic, `[K]`."""
        sampled, log_densities = self.sampled_actions(batch)
        actions = torch.cat([sampled, batch.actions.flatten(1).unsqueeze(1)], 1)  # [N, 3S + 1, A]
        features = self.critic.features(self.inputs_of(batch)).repeat_interleave(actions.shape[1], 0)
        q_values = self.critic({"features": features}, actions.flatten(0, 1)).unflatten(1, actions.shape[:2])
        return conservative_gap(q_values[..., :-1] - log_densities, q_values[..., -1], self.temperature).mean(1)

    @torch.no_grad()
    def sampled_actions(self, batch: SampleBatch) -> tuple[Tensor, Tensor]:
        """Actions `[N, 3S, A]`, uniform ones and those of π(s) and π(s'), and their log densities `[N, 3S]`."""
        box: Any = self.action_transform.policy_space
        low, high = (torch.as_tensor(bound, device=self.device).flatten() for bound in (box.low, box.high))
        uniform = low + (high - low) * torch.rand(batch.count, self.num_actions, len(low), device=self.device)
        actions, log_densities = [uniform], [-(high - low).log().sum().expand(uniform.shape[:2])]
        for following in (False, True):
            outputs, _ = self.model(self.inputs_of(batch, following=following, is_training=False), (), None)
            dist = self.distribution(outputs.repeat_interleave(self.num_actions, 0))
            actions.append(dist.rsample().view(uniform.shape))
            log_densities.append(dist.sampled_action_logp().view(uniform.shape[:2]))
        return torch.cat(actions, 1), torch.cat(log_densities, 1)

    def policy_loss(self, batch: SampleBatch, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """As `SAC`; mean of α log π(a'|s) − log π(a|s) in the first `bc_iters` gradient steps."""
        if self.gradient_steps >= self.bc_iters:
            return super().policy_loss(batch, alpha)
        _, dist = self.inputs_and_distribution(batch)
        recorded = dist.logp(batch.actions)
        dist.rsample()
        logp = dist.sampled_action_logp()
        return (alpha.detach() * logp - recorded).mean(), -logp.detach()
