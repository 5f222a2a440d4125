"""Q-learning from rollouts, without replay and without a target network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import torch
import torch.nn.functional as F
from torch import Tensor

from lightning_rl.learning.metrics import Metrics
from lightning_rl.losses.returns import lambda_returns
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.models.filters import RewardFilterName
from lightning_rl.policies.policy import Policy
from lightning_rl.policies.q_networks import q_model_and_action_dist
from lightning_rl.sample_batch import SampleBatch, action_mask_of
from lightning_rl.schema.ranges import Count, LearningRate, Passes, Positive, Probability, Width

__all__ = ["PQN"]


class PQN(Policy):
    """Parallelized Q-network: Q(λ) returns of rollouts from many environments. Gallici et al. 2024, arXiv:2407.04811.

    Layer normalization (`model.layer_norm`) replaces the target network, and many environments replace replay.

    Args:
        observation_space, action_space: the spaces of a single environment; actions must be Discrete.
        q_lambda: λ of the returns, in [0, 1]; 0 is the one-step target of Q-learning.
        passes: passes over each rollout.
        minibatches: number of minibatches per pass, equal on every rank; `None`: chosen so that each has about 64 rows.
        hiddens: widths of hidden layers with ReLU between the model's features and the Q-values.
        lr, max_grad_norm, keywords: arguments of `Policy`: model, exploration, gamma, optimizer, optimizer_kwargs,
            observation_filter, actions, custom_losses, seed.
        reward_filter: see `Policy`; with "return_std", values refer to scaled rewards.

    Raises:
        UnsupportedSpaceError: the actions are not Discrete.
        ConfigError: a number is out of range.
    """

    supports_recurrent = True
    uses_every_parameter = True

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        q_lambda: Probability = 0.85,
        passes: Passes = 4,
        minibatches: Count | None = None,
        hiddens: Sequence[Width] = (),
        lr: LearningRate = 5e-4,
        max_grad_norm: Positive | None = 10.0,
        reward_filter: RewardFilterName = "return_std",
        **keywords: Any,
    ) -> None:
        self.hiddens = tuple(hiddens)  # first: the base class builds the model
        super().__init__(
            observation_space, action_space, lr=lr, max_grad_norm=max_grad_norm, reward_filter=reward_filter, **keywords
        )
        self.q_lambda, self.passes, self.minibatches = q_lambda, passes, minibatches

    def make_model_and_action_dist(self, model: Mapping[str, Any] | None) -> tuple[Any, DistFactory]:
        """A Q-network on the model's features, and the Categorical of its Q-values."""
        return q_model_and_action_dist(self, model, self.hiddens)

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        """Add the returns Gₜ = rₜ + γ[(1−λ) maxₐ Q(sₜ₊₁, a) + λ Gₜ₊₁] as `value_targets`."""
        values = self.best_values(batch)
        ends = {"terminated": batch.terminated, "truncated": batch.truncated, "valid": batch.valid}
        batch = batch.copy()
        batch["value_targets"] = lambda_returns(batch.rewards, values, **ends, gamma=self.gamma, lam=self.q_lambda)
        return self.flatten_fragment(batch)

    def best_values(self, fragment: SampleBatch) -> Tensor:
        """The maximum of Q over the allowed actions, `[T+1, B]`."""
        shape = self.values(fragment.obs, fragment).shape
        q_values = self.model.head_outputs().unflatten(0, shape)
        mask = action_mask_of(fragment.obs, fragment.get("action_mask"))
        if mask is not None:  # a mask from infos has no row for the last observation
            q_values[: len(mask)].masked_fill_(~mask.bool(), -torch.inf)
        return q_values.amax(-1)

    def chosen_values(self, batch: SampleBatch) -> Tensor:
        """Q(s, a) of the rows, `[N]`, with gradients."""
        return self.outputs_of(batch)[0].gather(1, batch.actions.unsqueeze(1)).squeeze(1)

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """Mean of (Q(s, a) − G)²."""
        values = self.chosen_values(batch)
        loss = F.mse_loss(values, batch.value_targets)
        if not self.log_extra:
            return loss, {}
        td_errors = (values - batch.value_targets).detach()
        return loss, {"q_mean": values.detach().mean(), "td_error": td_errors.abs().mean()}
