"""Soft actor-critic, for continuous and for discrete actions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

import gymnasium as gym
import torch
from gymnasium import spaces
from torch import Tensor, nn

from lightning_rl.errors import ConfigError, UnsupportedSpaceError
from lightning_rl.learning.metrics import Metrics
from lightning_rl.losses.actor_critic import (
    critic_error,
    discrete_soft_policy_loss,
    discrete_soft_values,
    soft_policy_loss,
    soft_values,
    temperature_loss,
)
from lightning_rl.losses.value import td_targets
from lightning_rl.models import Model
from lightning_rl.models.critics import CriticEnsemble, ParallelMLP, form_of_actions
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.policies.policy import Policy
from lightning_rl.policies.targets import PolyakUpdate, frozen, target_copy
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Count, Critics, LearningRate, NonNegative, Portion, Positive, Range, Width
from lightning_rl.spaces import is_bounded_box

__all__ = ["SAC"]

ADAM = MappingProxyType({"betas": [0.5, 0.999]})


class SAC(Policy):
    """Soft actor-critic. Haarnoja et al. 2018, arXiv:1812.05905; with discrete actions Christodoulou 2019, 1910.07207.

    Args:
        observation_space, action_space: the spaces of a single environment; actions must be a bounded float Box or
            Discrete.
        tau: update rate τ of θ_target ← τ θ + (1 − τ) θ_target, in (0, 1]; 1 copies.
        target_update_interval: number of gradient steps between two updates of the target critics.
        critic_hiddens: widths of the critics' hidden layers; `None`: the same as the actor's.
        num_critics: number of critics.
        target_critics: number of randomly selected critics for the targets of each gradient step (REDQ,
            arXiv:2101.05982; the actor then maximizes the mean over all critics instead of the minimum); `None`: all.
        critic_dropout: dropout probability of the critics' hidden units (DroQ, arXiv:2110.02034).
        initial_alpha: initial temperature, > 0.
        target_entropy: "auto" (−A for continuous actions, ½ log n for n discrete ones), a number in nats, or `None` to
            keep the temperature constant.
        backup_entropy: whether targets include the entropy term of the next step, −α log π(a'|s'); `None`: only with
            continuous actions. With it, every further step earns an entropy bonus, so the agent may learn to avoid
            ending the episode.
        actor_lr_scale, critic_lr_scale, alpha_lr_scale: factors of `lr` for the actor, the critics, and the
            temperature.
        lr, optimizer_kwargs: see `Policy`; the default is CrossQ's (arXiv:1902.05605): fast, with little momentum.
        keywords: arguments of `Policy`: model, exploration, gamma, optimizer, max_grad_norm, filters, actions,
            custom_losses, seed.

    Raises:
        UnsupportedSpaceError: the actions are neither a bounded float Box nor Discrete.
        ConfigError: a number is out of range.
    """

    data = "replay"
    off_policy = True
    for_discrete: ClassVar[str] = ""  # algorithms to use for Discrete actions; "": this one
    policy_delay: int = 1  # gradient steps of the critics per step of the actor and the temperature
    log_alpha: Tensor

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        tau: Portion = 0.005,
        target_update_interval: Count = 1,
        critic_hiddens: Sequence[Width] | None = None,
        num_critics: Critics = 2,
        target_critics: Critics | None = None,
        critic_dropout: Annotated[float, Range(0, 1, below_high=True)] = 0.0,
        initial_alpha: Positive = 1.0,
        target_entropy: float | Literal["auto"] | None = "auto",
        backup_entropy: bool | None = None,
        actor_lr_scale: NonNegative = 1.0,
        critic_lr_scale: NonNegative = 1.0,
        alpha_lr_scale: NonNegative = 1.0,
        lr: LearningRate = 1e-3,
        optimizer_kwargs: Mapping[str, Any] | None = ADAM,
        **keywords: Any,
    ) -> None:
        if target_critics is not None and target_critics > num_critics:
            raise ConfigError(
                f"policy.target_critics={target_critics}; expected at most policy.num_critics={num_critics}"
            )
        self.critic_hiddens, self.num_critics, self.critic_dropout = critic_hiddens, num_critics, critic_dropout
        self.discrete = isinstance(action_space, spaces.Discrete)
        super().__init__(observation_space, action_space, lr=lr, optimizer_kwargs=optimizer_kwargs, **keywords)
        self.tau, self.target_update_interval, self.target_critics = tau, target_update_interval, target_critics
        self.backup_entropy = not self.discrete if backup_entropy is None else backup_entropy
        self.scales = {"actor": actor_lr_scale, "critic": critic_lr_scale, "alpha": alpha_lr_scale}
        self.make_target_critic()
        self.target_entropy = self._target_entropy(target_entropy)
        log_alpha = torch.tensor(math.log(initial_alpha))
        if self.target_entropy is None:
            self.register_buffer("log_alpha", log_alpha)
        else:
            self.log_alpha = nn.Parameter(log_alpha)

    def make_model_and_action_dist(self, model: Mapping[str, Any] | None) -> tuple[Model, DistFactory]:
        """The actor; the critics are built here too, so that their initial weights follow from the same seed."""
        space = self.action_space
        if not (is_bounded_box(space) or (self.discrete and not self.for_discrete)):
            others = "" if self.for_discrete else " or Discrete actions"
            raise UnsupportedSpaceError(
                f"{type(self).__name__} takes a float Box with finite bounds{others}; the action space is {space}: use "
                f"{self.for_discrete if self.discrete else 'ppo, a2c or pg'}"
            )
        # Values come from the critics; a network for them would learn nothing.
        config = {**(model or {}), "vf_share_layers": True}
        if not self.discrete and not config.get("custom_action_dist"):
            config["custom_action_dist"] = "SquashedGaussian"
        self.critic = self.make_critic(config)
        return super().make_model_and_action_dist(config)

    def make_critic(self, config: Mapping[str, Any], **more: Any) -> CriticEnsemble:
        """Q(s, a) of several critics, or Q(s, ·) for discrete actions."""
        if self.critic_hiddens is not None:
            config = {**config, "fcnet_hiddens": list(self.critic_hiddens)}
        keywords = {**form_of_actions(self.action_transform.policy_space), "count": self.num_critics, **more}
        return CriticEnsemble(
            self.observation_space, self.action_space, config, dropout=self.critic_dropout, **keywords
        )

    def make_target_critic(self) -> None:
        """The critic that computes targets, and its update after each gradient step."""
        self.target_critic = target_copy(self.critic)
        self._polyak_update = PolyakUpdate(self.target_critic, self.critic)

    def _target_entropy(self, wanted: float | str | None) -> float | None:
        if wanted != "auto":
            if isinstance(wanted, str):
                raise ConfigError(f"policy.target_entropy={wanted!r}; expected a number of nats, auto or null")
            return wanted
        space = self.action_transform.policy_space
        return (
            0.5 * math.log(int(space.n)) if isinstance(space, spaces.Discrete) else -float(math.prod(space.shape or ()))
        )

    def parameter_groups(self) -> list[dict[str, Any]]:
        """One group for all parameters of the same learning rate that are stepped together."""
        critics = {id(parameter) for parameter in self.critic.parameters()}
        groups: dict[tuple[float, int], list[nn.Parameter]] = {}
        for name, parameter in self.named_parameters():
            if parameter.requires_grad:
                part = "alpha" if name == "log_alpha" else "critic" if id(parameter) in critics else "actor"
                every = 1 if part == "critic" else self.policy_delay
                groups.setdefault((self.scales[part], every), []).append(parameter)
        return [
            {"params": parameters, "lr_scale": scale, **({"every": every} if every > 1 else {})}
            for (scale, every), parameters in groups.items()
        ]

    # -- learning ------------------------------------------------------------------------------------------------------
    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """The sum of the losses of the critics, the actor and the temperature: one backward, one step."""
        alpha = self.log_alpha.exp()
        critic_loss, td_errors, q_values = self.loss_of_critics(
            batch, alpha if self.backup_entropy else torch.zeros_like(alpha)
        )
        metrics = {"value_loss": critic_loss, "td_errors": td_errors.detach()}
        if self.log_extra:
            low, high = q_values.detach().aminmax()
            metrics |= {"q_mean": q_values.detach().mean(), "q_min": low, "q_max": high, "alpha": alpha.detach()}
        if (self.gradient_steps + 1) % self.policy_delay:
            return critic_loss, metrics
        policy_loss, entropy = self.policy_loss(batch, alpha)
        loss = critic_loss + policy_loss
        metrics["policy_loss"] = policy_loss
        if self.log_extra:
            metrics["entropy"] = entropy.detach().mean()
        if self.target_entropy is not None:
            alpha_loss = temperature_loss(self.log_alpha, entropy, self.target_entropy)
            loss = loss + alpha_loss
            if self.log_extra:
                metrics["alpha_loss"] = alpha_loss
        return loss, metrics

    def loss_of_critics(self, batch: SampleBatch, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `critic_loss`, against this batch's `targets`."""
        with torch.no_grad():
            targets = self.targets(batch, alpha)
        return self.critic_loss(batch, targets)

    def targets(self, batch: SampleBatch, alpha: Tensor) -> Tensor:
        """R + γ V(s') by the target critics, `[N]`; with α = 0 without the entropy of the next step."""
        inputs, dist = self.inputs_and_distribution(batch, following=True)
        inputs["is_training"] = self.target_critic.training
        if self.discrete:
            following = discrete_soft_values(*probabilities(dist), self.min_target_q(self.target_critic(inputs)), alpha)
        else:
            q_values = self.min_target_q(self.target_critic(inputs, flat(dist.rsample())))
            following = soft_values(q_values, dist.sampled_action_logp(), alpha)
        return td_targets(batch.rewards, following, batch.terminated, batch.discounts)

    def critic_loss(self, batch: SampleBatch, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The critics' error, the mean |TD error| of each row `[N]`, and their Q-values `[K, N]`."""
        q_values = self.critic.action_values(self.inputs_of(batch), batch.actions)
        return critic_error(q_values, targets, batch.get("weights")), (q_values - targets).abs().mean(0), q_values

    def policy_loss(self, batch: SampleBatch, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """The actor's loss, and the entropy `[N]` (for continuous actions the estimate −log π)."""
        inputs, dist = self.inputs_and_distribution(batch)
        if self.discrete:
            with torch.no_grad():
                q_values = self.actor_q_values(self.critic(inputs))
            return discrete_soft_policy_loss(*probabilities(dist), q_values, alpha), dist.entropy()
        actions = dist.rsample()
        logp = dist.sampled_action_logp()
        inputs["is_training"] = self.critic.training
        with frozen(self.critic):
            q_values = self.actor_q_values(self.critic(inputs, flat(actions)))
        return soft_policy_loss(q_values, logp, alpha), -logp

    def min_target_q(self, q_values: Tensor) -> Tensor:
        """The minimum over this gradient step's target critics, `[K, N, …]` → `[N, …]`."""
        return self.select_target_critics(q_values).amin(0)

    def select_target_critics(self, q_values: Tensor) -> Tensor:
        """Q-values of this gradient step's random subset of target critics, `[K, N, …]` → `[target_critics, N, …]`."""
        if self.target_critics is None or self.target_critics == self.num_critics:
            return q_values
        return q_values[torch.randperm(self.num_critics)[: self.target_critics]]

    def actor_q_values(self, q_values: Tensor) -> Tensor:
        """The Q-values that the actor maximizes, `[K, N, …]` → `[N, …]`: minimum or (REDQ) mean over the critics."""
        return q_values.amin(0) if self.target_critics is None else q_values.mean(0)

    def after_step(self) -> None:
        """Update the target critics every `target_update_interval` gradient steps."""
        if self.gradient_steps % self.target_update_interval == 0:
            self._polyak_update(self.tau)

    def resting_modules(self) -> list[nn.Module]:
        """As `Policy`; DroQ also applies dropout in the target critics (arXiv:2110.02034, algorithm 2)."""
        resting = super().resting_modules()
        return [module for module in resting if not (self.critic_dropout and isinstance(module, ParallelMLP))]


def flat(actions: Any) -> Tensor:
    """Actions `[N, *]` as vectors `[N, A]`."""
    return actions.reshape(len(actions), -1)


def probabilities(dist: Any) -> tuple[Tensor, Tensor]:
    """Probabilities of all actions and their logarithms, `[N, A]` each."""
    log_probs = dist.log_probs()
    return log_probs.exp(), log_probs
