"""Conservative Q-learning."""

from lightning_rl.rllib.by_name import default_config, policy_class, trainer_class

__all__ = ["CQL_DEFAULT_CONFIG", "DEFAULT_CONFIG", "CQLTorchPolicy", "CQLTrainer"]

CQLTrainer = trainer_class("CQL")
CQLTorchPolicy = policy_class("CQL")
CQL_DEFAULT_CONFIG = DEFAULT_CONFIG = default_config("CQL")
