"""DDPG and TD3."""

from lightning_rl.rllib.by_name import policy_class

__all__ = ["DDPGTorchPolicy"]

DDPGTorchPolicy = policy_class("DDPG")
