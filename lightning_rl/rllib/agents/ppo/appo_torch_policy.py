"""PPO, APPO and DD-PPO."""

from lightning_rl.rllib.by_name import policy_class

__all__ = ["APPOTorchPolicy"]

APPOTorchPolicy = policy_class("APPO")
