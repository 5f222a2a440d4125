"""A3C and A2C."""

from lightning_rl.rllib.by_name import policy_class
from lightning_rl.rllib.mixins import ValueNetworkMixin

__all__ = ["A3CTorchPolicy", "ValueNetworkMixin"]

A3CTorchPolicy = policy_class("A3C")
