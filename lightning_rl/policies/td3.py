"""Twin delayed deterministic policy gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.learning.metrics import Metrics
from lightning_rl.losses.actor_critic import critic_error
from lightning_rl.losses.value import td_targets
from lightning_rl.models import Model
from lightning_rl.models.critics import CriticEnsemble
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.models.model import InputDict
from lightning_rl.policies.policy import Policy
from lightning_rl.policies.targets import PolyakUpdate, frozen, target_copy
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Count, Critics, LearningRate, NonNegative, Portion
from lightning_rl.spaces import is_bounded_box, leaf_spaces

__all__ = ["TD3"]


class TD3(Policy):
    """Twin delayed DDPG: two critics, delayed actor updates, and smoothed targets.

    Fujimoto et al. 2018, arXiv:1802.09477.

    Args:
        observation_space, action_space: the spaces of a single environment; actions must be a bounded float Box.
        tau: update rate τ of θ_target ← τ θ + (1 − τ) θ_target, in (0, 1].
        num_critics: number of critics; targets use the lowest Q-value, and the actor's loss uses the first critic.
        policy_delay: gradient steps of the critics per update of the actor and the target networks.
        target_noise: standard deviation of the noise on the target actor's actions, in the policy's units ([−1, 1]).
        target_noise_clip: limit of the noise, which is clipped to ± this.
        actor_lr_scale, critic_lr_scale: factors of `lr` for the actor and the critics.
        keywords: arguments of `Policy`: model (the critics' hidden layers are those of the actor), exploration, gamma,
            lr, optimizer, optimizer_kwargs, max_grad_norm, filters, actions, custom_losses, seed.

    Raises:
        UnsupportedSpaceError: the actions are not a bounded float Box.
        ConfigError: a number is out of range.
    """

    data = "replay"
    off_policy = True
    actor_critics: int | None = 1  # number of critics, the first ones, whose values the actor's loss takes; `None`: all
    low: Tensor
    high: Tensor

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        tau: Portion = 0.005,
        num_critics: Critics = 2,
        policy_delay: Count = 2,
        target_noise: NonNegative = 0.2,
        target_noise_clip: NonNegative = 0.5,
        actor_lr_scale: NonNegative = 1.0,
        critic_lr_scale: NonNegative = 1.0,
        lr: LearningRate = 1e-3,
        **keywords: Any,
    ) -> None:
        self.num_critics, self.policy_delay = num_critics, policy_delay
        super().__init__(observation_space, action_space, lr=lr, **keywords)
        self.tau, self.target_noise, self.target_noise_clip = tau, target_noise, target_noise_clip
        self.actor_lr_scale, self.critic_lr_scale = actor_lr_scale, critic_lr_scale
        self.target_model, self.target_critic = target_copy(self.model), target_copy(self.critic)
        self._polyak_update_actor = PolyakUpdate(self.target_model, self.model)
        self._polyak_update_critic = PolyakUpdate(self.target_critic, self.critic)
        boxes = [leaf for _, leaf in leaf_spaces(self.action_transform.policy_space) if isinstance(leaf, spaces.Box)]
        for name, bounds in (("low", [box.low for box in boxes]), ("high", [box.high for box in boxes])):
            entries = np.concatenate([np.zeros(0, np.float32), *(bound.ravel() for bound in bounds)])
            self.register_buffer(name, torch.from_numpy(entries), persistent=False)

    def make_model_and_action_dist(self, model: Mapping[str, Any] | None) -> tuple[Model, DistFactory]:
        """The actor; the critics are built here too, so that their initial weights follow from the same seed."""
        space = self.action_space
        if not is_bounded_box(space):
            raise UnsupportedSpaceError(
                f"{type(self).__name__} takes a float Box with finite bounds; the action space is {space}: use dqn or "
                "sac for Discrete actions, ppo, a2c or pg for any"
            )
        config = {**(model or {}), "vf_share_layers": True}
        config["custom_action_dist"] = config.get("custom_action_dist") or "SquashedDeterministic"
        self.critic = self.make_critic(config)
        return super().make_model_and_action_dist(config)

    def make_critic(self, config: Mapping[str, Any]) -> CriticEnsemble:
        """Q(s, a) of several critics."""
        space = self.action_space
        return CriticEnsemble(
            self.observation_space, space, config, count=self.num_critics, action_size=math.prod(space.shape or ())
        )

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The critics, which step at every gradient step, and the actor, which steps every `policy_delay` steps."""
        critics: list[nn.Parameter] = [p for p in self.critic.parameters() if p.requires_grad]
        known = {id(parameter) for parameter in critics}
        actor = [p for p in self.parameters() if p.requires_grad and id(p) not in known]
        if self.policy_delay == 1 and self.actor_lr_scale == self.critic_lr_scale:
            return [{"params": [*critics, *actor], "lr_scale": self.critic_lr_scale}]
        return [
            {"params": critics, "lr_scale": self.critic_lr_scale},
            {"params": actor, "lr_scale": self.actor_lr_scale, "every": self.policy_delay},
        ]

    # -- learning ------------------------------------------------------------------------------------------------------
    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """Error of the critics and, every `policy_delay` steps, the actor's loss −Q(s, π(s))."""
        with torch.no_grad():
            targets = td_targets(batch.rewards, self.bootstrap_values(batch), batch.terminated, batch.discounts)
        inputs = self.inputs_of(batch)
        q_values = self.critic.action_values(inputs, batch.actions)
        critic_loss = critic_error(q_values, targets, batch.get("weights"))
        td_errors = (q_values.detach() - targets).abs().mean(0)  # signed errors of two critics would cancel out
        metrics = {"value_loss": critic_loss, "td_errors": td_errors}
        if self.log_extra:
            low, high = q_values.detach().aminmax()
            metrics |= {"q_mean": q_values.detach().mean(), "q_min": low, "q_max": high}
        if (self.gradient_steps + 1) % self.policy_delay:
            return critic_loss, metrics
        actions = self.actor_actions(self.model, inputs)
        with frozen(self.critic):
            policy_loss = self.actor_loss(self.critic(inputs, actions, self.actor_critics), actions, batch)
        return critic_loss + policy_loss, {**metrics, "policy_loss": policy_loss}

    def actor_loss(self, q_values: Tensor, actions: Tensor, batch: SampleBatch) -> Tensor:
        """The actor's loss, a scalar, of its actions `[N, A]` and their Q-values `[actor_critics, N]`: −mean Q₁."""
        return -q_values[0].mean()

    def bootstrap_values(self, batch: SampleBatch) -> Tensor:
        """The lowest target Q-value of the target actor's next actions with clipped noise, `[N]`."""
        inputs = self.inputs_of(batch, following=True, is_training=self.target_model.training)
        actions = self.actor_actions(self.target_model, inputs)
        if self.target_noise:
            noise = (torch.randn_like(actions) * self.target_noise).clamp_(
                -self.target_noise_clip, self.target_noise_clip
            )
            actions = torch.minimum(torch.maximum(actions + noise, self.low), self.high)
        return self.next_q_values(self.target_critic(inputs, actions), actions, batch)

    def next_q_values(self, q_values: Tensor, actions: Tensor, batch: SampleBatch) -> Tensor:
        """The lowest of the target Q-values `[K, N]` of next actions `[N, A]`, `[N]`."""
        return q_values.amin(0)

    def actor_actions(self, actor: Model, inputs: InputDict) -> Tensor:
        """The deterministic actions `[N, A]` of an actor."""
        outputs, _ = actor(inputs, (), None)
        return self.distribution(outputs).deterministic_sample().reshape(len(outputs), -1)

    def after_step(self) -> None:
        """Update the target networks after a step of the actor."""
        if self.gradient_steps % self.policy_delay == 0:
            self._polyak_update_critic(self.tau)
            self._polyak_update_actor(self.tau)
