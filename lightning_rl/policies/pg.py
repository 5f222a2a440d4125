"""REINFORCE."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from torch import Tensor

from lightning_rl.learning.metrics import Metrics
from lightning_rl.losses.policy_gradient import policy_gradient
from lightning_rl.losses.returns import discounted_returns
from lightning_rl.policies.advantages import standardise_over_ranks
from lightning_rl.policies.policy import Policy
from lightning_rl.ranges import LearningRate
from lightning_rl.sample_batch import SampleBatch

__all__ = ["PG"]


class PG(Policy):
    """REINFORCE: whole episodes, discounted returns, no critic. Williams 1992, Machine Learning 8.

    Without a critic there is no estimate of the rewards after a fragment's end, so fragments should be whole episodes:
    `workers.batch_mode=complete_episodes`, its config's default. The return of an episode that a time limit ends is the
    sum of the rewards until then.

    Args:
        observation_space, action_space: of one environment.
        standardise_returns: over the batch, to mean 0 and deviation 1 (a constant baseline).
        keywords: of `Policy`: model, exploration, gamma, lr, optimizer, optimizer_kwargs, max_grad_norm, filters,
            actions, custom_losses, seed.
    """

    supports_recurrent = True

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        standardise_returns: bool = True,
        lr: LearningRate = 3e-3,
        **keywords: Any,
    ) -> None:
        super().__init__(observation_space, action_space, lr=lr, **keywords)
        self.standardise_returns = standardise_returns

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        """Add the discounted return from each step on as its advantage."""
        ends = {"terminated": batch.terminated, "truncated": batch.truncated, "valid": batch.valid}
        batch = batch.copy()
        batch["advantages"] = discounted_returns(batch.rewards, **ends, gamma=self.gamma)
        return self.flatten_fragment(batch)

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """−mean log π(a|s) · return."""
        dist = self.distribution_of(batch)
        advantages = standardise_over_ranks(self, batch.advantages) if self.standardise_returns else batch.advantages
        policy_loss = policy_gradient(dist.logp(batch.actions), advantages)
        return policy_loss, {"policy_loss": policy_loss, "entropy": dist.entropy().mean()}
