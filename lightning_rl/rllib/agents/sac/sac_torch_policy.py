"""Soft actor-critic."""

from lightning_rl.rllib.by_name import policy_class

__all__ = ["SACTorchPolicy"]

SACTorchPolicy = policy_class("SAC")
