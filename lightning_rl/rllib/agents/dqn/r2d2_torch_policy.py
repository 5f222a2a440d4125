"""R2D2."""

from lightning_rl.rllib.by_name import policy_class

__all__ = ["R2D2TorchPolicy"]

R2D2TorchPolicy = policy_class("R2D2")
