"""Behavior cloning."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from torch import Tensor

from lightning_rl.learning.metrics import Metrics, mean_entropy
from lightning_rl.policies.policy import Policy
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Count, LearningRate, Passes

__all__ = ["BC", "with_initial_states"]


class BC(Policy):
    """Behavior cloning: supervised learning of recorded actions, whatever they returned. Pomerleau 1989, NeurIPS.

    Args:
        observation_space, action_space: the spaces of a single environment.
        passes: passes over the rows of an iteration.
        minibatches: number of minibatches per pass; `None`: chosen so that each has about 64 rows.
        lr, keywords: arguments of `Policy`: model, exploration, gamma, optimizer, optimizer_kwargs, max_grad_norm,
            filters, actions, custom_losses, seed.
    """

    data = "offline"
    imitates = True
    supports_recurrent = True
    free_log_std = True

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        passes: Passes = 1,
        minibatches: Count | None = None,
        lr: LearningRate = 1e-3,
        **keywords: Any,
    ) -> None:
        super().__init__(observation_space, action_space, lr=lr, **keywords)
        self.passes, self.minibatches = passes, minibatches

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        """The rows of the fragment; in sequences if the model is recurrent."""
        return self.flatten_fragment(with_initial_states(self, batch))

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """−mean log π(a|s)."""
        dist = self.distribution_of(batch)
        loss = -dist.logp(batch.actions).mean()
        metrics = {"policy_loss": loss}
        if self.log_extra:
            metrics["entropy"] = mean_entropy(dist, 0.0)
        return loss, metrics


def with_initial_states(policy: Policy, fragment: SampleBatch) -> SampleBatch:
    """The fragment with the states that a recurrent model reads; recorded data have none.

    Every sequence then begins in the state of an episode's start (Kapturowski et al. 2019, "zero state"), so
    `model.max_seq_len` is how far back the model can learn to remember.

    Args:
        policy: whose model may be recurrent.
        fragment: `obs [T+1, B, *]`, everything else `[T, B, …]`.
    """
    if not policy.is_recurrent or "state_in" in fragment:
        return fragment
    steps, envs = fragment.valid.shape
    states = {str(n): state.expand(steps + 1, *state.shape) for n, state in enumerate(policy.get_initial_state(envs))}
    fragment = fragment.copy()
    fragment["state_in"] = SampleBatch(states)
    return fragment
