"""Policy gradients, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import policy_class, trainer_class

__all__ = ["PG", "PGConfig", "PGTorchPolicy"]

PG = trainer_class("PG")
PGTorchPolicy = policy_class("PG")
PGConfig = rllib.PGConfig
