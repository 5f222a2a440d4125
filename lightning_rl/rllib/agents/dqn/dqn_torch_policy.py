"""DQN and what is made of it."""

from lightning_rl.rllib.by_name import policy_class

__all__ = ["DQNTorchPolicy"]

DQNTorchPolicy = policy_class("DQN")
