"""IMPALA."""

from lightning_rl.rllib.by_name import default_config, policy_class, trainer_class

__all__ = ["DEFAULT_CONFIG", "ImpalaTorchPolicy", "ImpalaTrainer"]

ImpalaTrainer = trainer_class("Impala")
ImpalaTorchPolicy = policy_class("Impala")
DEFAULT_CONFIG = default_config("Impala")
