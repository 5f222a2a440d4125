"""TD3+BC revisited: normalized critics, and a penalty in their targets too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym
import torch
from torch import Tensor

from lightning_rl.losses.offline import regularized_policy_loss
from lightning_rl.models.critics import CriticEnsemble
from lightning_rl.policies.td3 import TD3
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Coefficient

__all__ = ["ReBRAC"]


class ReBRAC(TD3):
    """TD3 with LayerNorm in its critics that penalizes distances from recorded actions in the actor and in the targets.

    Tarasov et al. 2023, arXiv:2305.09836.

    Args:
        observation_space, action_space: the spaces of a single environment; actions must be a bounded float Box.
        actor_bc_coef: β₁, weight of |π(s) − a|² relative to Q(s, π(s)) / mean |Q|.
        critic_bc_coef: β₂, weight of |π_target(s') − a'|² in the targets, in units of the return.
        keywords: see `TD3`.

    Raises:
        UnsupportedSpaceError: the actions are not a bounded float Box.
        ConfigError: a number is out of range.
    """

    replay_columns: ClassVar[tuple[str, ...]] = ("next_actions",)
    actor_critics = None  # the actor's loss takes the lowest value of all critics

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        actor_bc_coef: Coefficient = 0.01,
        critic_bc_coef: Coefficient = 0.01,
        **keywords: Any,
    ) -> None:
        super().__init__(observation_space, action_space, **keywords)
        self.actor_bc_coef, self.critic_bc_coef = actor_bc_coef, critic_bc_coef

    def make_critic(self, config: Mapping[str, Any]) -> CriticEnsemble:
        """As `TD3`, with LayerNorm."""
        return super().make_critic({**config, "layer_norm": True})

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        """Add the recorded `next_actions`; leaves out rows that a time limit or the fragment's end leaves without."""
        following = torch.zeros_like(batch.valid)
        following[:-1] = batch.valid[1:] & ~batch.truncated[:-1]
        batch = batch.copy()
        batch["next_actions"] = torch.cat([batch.actions[1:], torch.zeros_like(batch.actions[:1])])
        batch["valid"] = batch.valid & (following | batch.terminated)
        return super().postprocess_trajectory(batch, other_agent_batches)

    def next_q_values(self, q_values: Tensor, actions: Tensor, batch: SampleBatch) -> Tensor:
        """Min Q_target(s', a) − β₂ |a − a'|², `[N]`, with the recorded action a'."""
        distances = (actions - batch["next_actions"].flatten(1)).square().sum(1)
        return super().next_q_values(q_values, actions, batch) - self.critic_bc_coef * distances

    def actor_loss(self, q_values: Tensor, actions: Tensor, batch: SampleBatch) -> Tensor:
        """β₁ mean |π(s) − a|² − mean Q / mean |Q|, with the lowest Q-value of the critics."""
        distances = (actions - batch.actions.flatten(1)).square().sum(1)
        return regularized_policy_loss(q_values.amin(0), self.actor_bc_coef * distances, 1.0)
