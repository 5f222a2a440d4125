"""PPO, APPO and DD-PPO."""

from lightning_rl.rllib.by_name import policy_class

__all__ = ["PPOTorchPolicy"]

PPOTorchPolicy = policy_class("PPO")
