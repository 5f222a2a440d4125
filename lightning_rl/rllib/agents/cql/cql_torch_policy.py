"""Conservative Q-learning."""

from lightning_rl.rllib.by_name import policy_class

__all__ = ["CQLTorchPolicy"]

CQLTorchPolicy = policy_class("CQL")
