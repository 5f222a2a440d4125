"""A3C and A2C."""

from lightning_rl.rllib.by_name import policy_class
from lightning_rl.rllib.mixins import ValueNetworkMixin
from lightning_rl.rllib.on_policy_losses import actor_critic_loss

__all__ = ["A3CTorchPolicy", "ValueNetworkMixin", "actor_critic_loss"]

A3CTorchPolicy = policy_class("A3C")
