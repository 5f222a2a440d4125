"""Policy gradients."""

from lightning_rl.rllib.by_name import policy_class

__all__ = ["PGTorchPolicy"]

PGTorchPolicy = policy_class("PG")
