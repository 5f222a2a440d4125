"""REINFORCE."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import torch
from torch import Tensor

from lightning_rl.distributed import all_gather_objects, total_over_ranks
from lightning_rl.learning.metrics import Metrics
from lightning_rl.losses.baseline import batch_baseline
from lightning_rl.losses.policy_gradient import policy_gradient
from lightning_rl.losses.returns import discounted_returns
from lightning_rl.losses.value import explained_variance
from lightning_rl.policies.advantages import standardize_over_ranks
from lightning_rl.policies.policy import Policy
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import LearningRate

__all__ = ["PG"]

WIDEST = 128  # observations of more numbers, such as images, have no part in the baseline


class PG(Policy):
    """REINFORCE: whole episodes, discounted returns, no critic. Williams 1992, Machine Learning 8.

    Without a critic there is no estimate of the rewards after a fragment's end, so fragments should be whole episodes:
    `workers.batch_mode=complete_episodes`, its config's default. The return of an episode that a time limit ends is the
    sum of the rewards until then.

    Args:
        observation_space, action_space: the spaces of a single environment.
        baseline: "batch": subtract a fit of the batch's returns on the step and the observation
            (`losses.batch_baseline`), without observations of more than 128 numbers; "none": no baseline.
        standardize_returns: standardize returns minus the baseline over the batch, to mean 0 and standard deviation 1.
        keywords: arguments of `Policy`: model, exploration, gamma, lr, optimizer, optimizer_kwargs, max_grad_norm,
            filters, actions, custom_losses, seed.
    """

    supports_recurrent = True
    free_log_std = True

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        baseline: Literal["batch", "none"] = "batch",
        standardize_returns: bool = True,
        lr: LearningRate = 4e-3,
        **keywords: Any,
    ) -> None:
        super().__init__(observation_space, action_space, lr=lr, **keywords)
        self.baseline = baseline
        self.standardize_returns = standardize_returns

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        """Add the discounted return from each step on as its advantage."""
        ends = {"terminated": batch.terminated, "truncated": batch.truncated, "valid": batch.valid}
        batch = batch.copy()
        batch["advantages"] = discounted_returns(batch.rewards, **ends, gamma=self.gamma)
        return self.flatten_fragment(batch)

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """−mean log π(a|s) · (return − baseline)."""
        dist = self.distribution_of(batch)
        advantages, metrics = batch.advantages, Metrics()
        if self.baseline == "batch":
            expected = self._batch_baseline(batch)
            metrics["explained_variance"] = explained_variance(expected, advantages)
            advantages = advantages - expected
        if self.standardize_returns:
            advantages = standardize_over_ranks(self, advantages)
        policy_loss = policy_gradient(dist.logp(batch.actions), advantages)
        return policy_loss, {"policy_loss": policy_loss, "entropy": dist.entropy().mean(), **metrics}

    def _batch_baseline(self, batch: SampleBatch) -> Tensor:
        """The baseline `[N]` of the rows, from those of all ranks inside a Trainer."""
        steps = batch.t if "t" in batch else torch.zeros_like(batch.rewards)  # of a fragment without steps
        observations = None if self.preprocessor.size > WIDEST else self.input_dict(batch.obs)["obs_flat"]
        if not self.in_trainer:
            return batch_baseline(batch.advantages, steps, observations)
        longest = max(all_gather_objects(int(steps.max()) + 1))
        return batch_baseline(batch.advantages, steps, observations, total=total_over_ranks, longest=longest)
