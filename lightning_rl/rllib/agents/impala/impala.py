"""IMPALA."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["DEFAULT_CONFIG", "ImpalaTrainer"]

ImpalaTrainer = trainer_class("Impala")
DEFAULT_CONFIG = default_config("Impala")
