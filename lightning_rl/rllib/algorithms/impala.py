"""IMPALA, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import policy_class, trainer_class

__all__ = ["Impala", "ImpalaConfig", "ImpalaTorchPolicy"]

Impala = trainer_class("Impala")
ImpalaTorchPolicy = policy_class("Impala")
ImpalaConfig = rllib.ImpalaConfig
