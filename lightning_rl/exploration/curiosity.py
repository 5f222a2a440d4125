"""Curiosity: rewards for transitions that a learned model predicts badly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor, nn

from lightning_rl.exploration.features import Features, NetworkOptions
from lightning_rl.exploration.intrinsic import IntrinsicReward
from lightning_rl.models.distributions import parts_of
from lightning_rl.models.layers import MLP, Activation, activation_name
from lightning_rl.models.preprocessors import make_preprocessor
from lightning_rl.schema.ranges import NonNegativeSchedule, Probability, Width
from lightning_rl.spaces import leaf_spaces, leaf_values

__all__ = ["Curiosity"]


class Curiosity(IntrinsicReward):
    """The intrinsic curiosity module (ICM): r = η/2 ‖φ̂(s') − φ(s')‖². Pathak et al. 2017, arXiv:1705.05363.

    φ is trained to predict the action between two observations (the inverse model), so it encodes what the agent can
    influence. The forward model predicts φ(s') from φ(s) and the action; its error is the reward. Only the inverse
    model trains φ, which is normalized to mean 0 and deviation 1: otherwise the forward model could reduce its error by
    making φ small, and errors would grow as the inverse model makes φ larger.

    Args:
        action_space: any space.
        observation_space: space of a single environment's observations, of any kind.
        eta: weight η of the intrinsic reward, a number or a schedule over env steps.
        beta: weight of the forward model's loss, and 1 − beta of the inverse model's, in [0, 1] (eq. 7).
        feature_dim: number of features φ.
        feature_net_config: keys of the model config for φ; `None`: its defaults for the space.
        inverse_net_hiddens: widths of the inverse model's hidden layers.
        inverse_net_activation: activation of the inverse model.
        forward_net_hiddens: widths of the forward model's hidden layers.
        forward_net_activation: activation of the forward model.
        normalize: see `IntrinsicReward`; False keeps the paper's units.
        observation_filter, sub_exploration: see `IntrinsicReward`.

    Raises:
        ConfigError: η is negative, or a setting of the networks is unknown.
    """

    def __init__(
        self,
        action_space: Space[Any],
        observation_space: Space[Any],
        eta: NonNegativeSchedule = 0.1,
        beta: Probability = 0.2,
        feature_dim: Width = 64,
        feature_net_config: NetworkOptions | None = None,
        inverse_net_hiddens: Sequence[Width] = (256,),
        inverse_net_activation: Activation = "relu",
        forward_net_hiddens: Sequence[Width] = (256,),
        forward_net_activation: Activation = "relu",
        **keywords: Any,
    ) -> None:
        made = (observation_space, action_space, feature_dim, feature_net_config, "feature_net_config")
        super().__init__(action_space, observation_space, Features(*made, normalize=True), eta, **keywords)
        self.beta = beta
        self.actions = make_preprocessor(action_space)  # one-hot for discrete actions
        self.guesses = ActionGuess(action_space)
        inverse = MLP(2 * feature_dim, inverse_net_hiddens, activation_name(inverse_net_activation))
        self.inverse_model = nn.Sequential(inverse, nn.Linear(inverse.size, self.guesses.size))
        forward = MLP(feature_dim + self.actions.size, forward_net_hiddens, activation_name(forward_net_activation))
        self.forward_model = nn.Sequential(forward, nn.Linear(forward.size, feature_dim))

    def novelty(self, obs: dict[str, Any], actions: Any, next_obs: dict[str, Any]) -> Tensor:
        """½ ‖φ̂(s') − φ(s')‖²."""
        return self._surprise(self.encoder(obs), actions, self.encoder(next_obs))

    def own_loss(self, obs: dict[str, Any], actions: Any, next_obs: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """(1 − β) inverse loss + β forward loss."""
        before, after = self.encoder(obs), self.encoder(next_obs)
        inverse_loss = self.guesses.loss(self.inverse_model(torch.cat([before, after], dim=1)), actions)
        forward_loss = self._surprise(before.detach(), actions, after.detach()).mean()
        loss = (1.0 - self.beta) * inverse_loss + self.beta * forward_loss
        return loss, {"inverse_loss": inverse_loss, "forward_loss": forward_loss}

    def _surprise(self, before: Tensor, actions: Any, after: Tensor) -> Tensor:
        predicted = self.forward_model(torch.cat([before, self.actions.transform_batch(actions)], dim=1))
        return 0.5 * (predicted - after).square().sum(1)


class ActionGuess:
    """Loss and size of an inverse model's prediction, for any action space: logits of discrete parts, else values.

    Args:
        action_space: the action space of the policy.
    """

    def __init__(self, action_space: Space[Any]) -> None:
        self.action_space = action_space
        self.parts = parts_of(action_space)
        leaves = [leaf for _, leaf in leaf_spaces(action_space)]
        self.sizes = [
            part.inputs if part.maskable else int(torch.Size(leaf.shape or ()).numel())
            for part, leaf in zip(self.parts, leaves, strict=True)
        ]
        self.size = sum(self.sizes)
        """Number of outputs of the inverse model."""

    def loss(self, guesses: Tensor, actions: Any) -> Tensor:
        """Mean over the rows of −log p(action), or of half the squared distance for continuous parts.

        Args:
            guesses: `[N, size]`.
            actions: `[N, …]`, in the policy's space.
        """
        total = guesses.new_zeros(len(guesses))
        pieces = guesses.split(self.sizes, dim=1)
        for part, guess, taken in zip(self.parts, pieces, leaf_values(self.action_space, actions), strict=True):
            if part.maskable:
                total = total - part.factory(guess, None, None).logp(taken)
            else:
                total = total + 0.5 * (guess - taken.reshape(len(taken), -1)).square().sum(1)
        return total.mean()
