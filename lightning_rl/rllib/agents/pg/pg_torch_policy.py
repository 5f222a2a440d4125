"""Policy gradients."""

from lightning_rl.rllib.by_name import policy_class
from lightning_rl.rllib.on_policy_losses import pg_torch_loss

__all__ = ["PGTorchPolicy", "pg_torch_loss"]

PGTorchPolicy = policy_class("PG")
