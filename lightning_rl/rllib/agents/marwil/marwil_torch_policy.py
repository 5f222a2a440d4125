"""MARWIL and behavior cloning."""

from lightning_rl.rllib.by_name import policy_class

__all__ = ["MARWILTorchPolicy"]

MARWILTorchPolicy = policy_class("MARWIL")
