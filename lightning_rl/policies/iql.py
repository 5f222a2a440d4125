"""Q-learning that evaluates recorded actions only."""

from __future__ import annotations

from typing import Annotated, Any

import gymnasium as gym
import torch
from torch import Tensor

from lightning_rl.learning.metrics import Metrics
from lightning_rl.losses.offline import advantage_weights
from lightning_rl.losses.policy_gradient import policy_gradient
from lightning_rl.losses.value import expectile, weighted_mean
from lightning_rl.policies.awac import AWAC
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import NonNegative, Range

__all__ = ["IQL"]


class IQL(AWAC):
    """Implicit Q-learning: V(s) is a high expectile of Q(s, a) over recorded actions, so no other action is evaluated.

    Kostrikov et al. 2021, arXiv:2110.06169.

    Args:
        observation_space, action_space: the spaces of a single environment; actions must be a bounded float Box or
            Discrete.
        expectile: expectile τ of V(s), in (0, 1); ½ is the mean, and values near 1 approach the maximum over recorded
            actions.
        beta: see `AWAC`.
        keywords: see `AWAC`: max_weight, tau, num_critics, critic_hiddens and those of `Policy`.

    Raises:
        UnsupportedSpaceError: the actions are neither a bounded float Box nor Discrete.
        ConfigError: a number is out of range.
    """

    uses_every_parameter = True
    learns_values = True

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        expectile: Annotated[float, Range(0, 1, above_low=True, below_high=True)] = 0.7,
        beta: NonNegative = 3.0,
        **keywords: Any,
    ) -> None:
        super().__init__(observation_space, action_space, beta=beta, **keywords)
        self.expectile = expectile

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """The critics' error, the expectile loss of A = Q_target(s, a) − V(s), and −mean exp(β A) log π(a|s)."""
        with torch.no_grad():
            self.model(self.inputs_of(batch, following=True, is_training=self.model.training), (), None)
            following = self.model.value_function().float()
            inputs = self.inputs_of(batch, is_training=self.target_critic.training)
            recorded = self.target_critic.action_values(inputs, batch.actions).amin(0)
        inputs, dist = self.inputs_and_distribution(batch)
        advantages = recorded - self.model.value_function().float()
        value_loss = weighted_mean(expectile(advantages, self.expectile), batch.get("weights"))
        critic_loss, _, metrics = self.critic_loss(inputs, following, batch)
        weights = advantage_weights(advantages, self.beta, self.max_weight)
        policy_loss = policy_gradient(dist.logp(batch.actions), weights)
        metrics |= {"policy_loss": policy_loss, "expectile_loss": value_loss}
        return critic_loss + value_loss + policy_loss, metrics
