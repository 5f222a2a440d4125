"""Conservative Q-learning."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["CQL_DEFAULT_CONFIG", "CQLTrainer"]

CQLTrainer = trainer_class("CQL")
CQL_DEFAULT_CONFIG = default_config("CQL")
