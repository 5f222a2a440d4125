"""Conservative Q-learning, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import policy_class, trainer_class

__all__ = ["CQL", "CQLConfig", "CQLTorchPolicy"]

CQL = trainer_class("CQL")
CQLTorchPolicy = policy_class("CQL")
CQLConfig = rllib.CQLConfig
