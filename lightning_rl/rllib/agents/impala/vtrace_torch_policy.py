"""IMPALA."""

from lightning_rl.rllib.by_name import policy_class

__all__ = ["VTraceTorchPolicy"]

VTraceTorchPolicy = policy_class("Impala")
