"""A3C and A2C."""

from lightning_rl.rllib.by_name import policy_class

__all__ = ["A3CTorchPolicy"]

A3CTorchPolicy = policy_class("A3C")
