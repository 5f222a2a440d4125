"""Conservative Q-learning."""

from lightning_rl.rllib.by_name import default_config, policy_class, trainer_class

__all__ = ["DEFAULT_CONFIG", "CQLTorchPolicy", "CQLTrainer"]

CQLTrainer = trainer_class("CQL")
CQLTorchPolicy = policy_class("CQL")
DEFAULT_CONFIG = default_config("CQL")
