"""Actor-critic whose actor imitates the recorded actions that its critics prefer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import torch
from gymnasium import spaces
from torch import Tensor

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.learning.metrics import Metrics
from lightning_rl.losses.actor_critic import critic_error
from lightning_rl.losses.offline import advantage_weights
from lightning_rl.losses.policy_gradient import policy_gradient
from lightning_rl.losses.value import td_targets
from lightning_rl.models import Model
from lightning_rl.models.critics import CriticEnsemble, form_of_actions
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.models.model import InputDict
from lightning_rl.policies.policy import Policy
from lightning_rl.policies.targets import PolyakUpdate, target_copy
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Critics, NonNegative, Portion, Positive, Width
from lightning_rl.spaces import is_bounded_box

__all__ = ["AWAC"]


class AWAC(Policy):
    """Advantage-weighted actor-critic: maximizes the likelihood of recorded actions, weighted by exp(β A).

    Nair et al. 2020, arXiv:2006.09359.

    Args:
        observation_space, action_space: the spaces of a single environment; actions must be a bounded float Box or
            Discrete.
        beta: β = 1/λ ≥ 0, in units of 1 / return; 0 clones the recorded actions.
        max_weight: upper limit of a row's weight.
        tau: update rate τ of θ_target ← τ θ + (1 − τ) θ_target after each gradient step, in (0, 1].
        num_critics: number of critics; the lowest Q-value is used.
        critic_hiddens: widths of the critics' hidden layers; `None`: the same as the actor's.
        keywords: arguments of `Policy`: model, exploration, gamma, lr, optimizer, optimizer_kwargs, max_grad_norm,
            filters, actions, custom_losses, seed.

    Raises:
        UnsupportedSpaceError: the actions are neither a bounded float Box nor Discrete.
        ConfigError: a number is out of range.
    """

    data = "replay"
    off_policy = True
    free_log_std = True
    learns_values = False  # whether the model's own V(s) is learned

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        beta: NonNegative = 1.0,
        max_weight: Positive = 100.0,
        tau: Portion = 0.005,
        num_critics: Critics = 2,
        critic_hiddens: Sequence[Width] | None = None,
        **keywords: Any,
    ) -> None:
        self.num_critics, self.critic_hiddens = num_critics, critic_hiddens
        self.discrete = isinstance(action_space, spaces.Discrete)
        super().__init__(observation_space, action_space, **keywords)
        self.beta, self.max_weight, self.tau = beta, max_weight, tau
        self.target_critic = target_copy(self.critic)
        self._polyak_update = PolyakUpdate(self.target_critic, self.critic)

    def make_model_and_action_dist(self, model: Mapping[str, Any] | None) -> tuple[Model, DistFactory]:
        """The actor; the critics are built here too, so that their initial weights follow from the same seed."""
        space = self.action_space
        if not (self.discrete or is_bounded_box(space)):
            raise UnsupportedSpaceError(
                f"{type(self).__name__} takes a float Box with finite bounds or Discrete actions; the action space is "
                f"{space}: use marwil or bc, or ppo"
            )
        actor = dict(model or {}) if self.learns_values else {**(model or {}), "vf_share_layers": True}
        critic = {**actor, **({"fcnet_hiddens": list(self.critic_hiddens)} if self.critic_hiddens else {})}
        form = form_of_actions(space)
        self.critic = CriticEnsemble(self.observation_space, space, critic, count=self.num_critics, **form)
        return super().make_model_and_action_dist(actor)

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """The critics' error, and −mean exp(β A) log π(a|s) with A = Q(s, a) − V(s)."""
        space = self.action_transform.policy_space
        with torch.no_grad():
            next_inputs, next_dist = self.inputs_and_distribution(batch, following=True)
        following = self.target_critic.state_values(next_inputs, next_dist, space)
        inputs, dist = self.inputs_and_distribution(batch)
        logp = dist.logp(batch.actions)  # with its graph, before `state_values` computes probabilities without one
        critic_loss, q_values, metrics = self.critic_loss(inputs, following, batch)
        advantages = q_values.amin(0) - self.critic.state_values(inputs, dist, space)
        policy_loss = policy_gradient(logp, advantage_weights(advantages, self.beta, self.max_weight))
        return critic_loss + policy_loss, {**metrics, "policy_loss": policy_loss}

    def critic_loss(self, inputs: InputDict, following: Tensor, batch: SampleBatch) -> tuple[Tensor, Tensor, Metrics]:
        """The critics' error against r + γ V(s'), their Q-values of the recorded actions `[K, N]`, and metrics.

        Args:
            inputs: the inputs of the rows' observations.
            following: V(s'), `[N]`.
            batch: the rows.
        """
        targets = td_targets(batch.rewards, following, batch.terminated, batch.discounts)
        q_values = self.critic.action_values(inputs, batch.actions)
        loss = critic_error(q_values, targets, batch.get("weights"))
        td_errors = (q_values.detach() - targets).abs().mean(0)
        return loss, q_values, {"value_loss": loss, "q_mean": q_values.detach().mean(), "td_errors": td_errors}

    def after_step(self) -> None:
        """Update the target critics."""
        self._polyak_update(self.tau)
