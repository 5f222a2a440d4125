"""PPO, APPO and DD-PPO."""

from lightning_rl.rllib.by_name import policy_class
from lightning_rl.rllib.mixins import KLCoeffMixin, ValueNetworkMixin

__all__ = ["KLCoeffMixin", "PPOTorchPolicy", "ValueNetworkMixin"]

PPOTorchPolicy = policy_class("PPO")
