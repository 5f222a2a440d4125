"""Policy gradients."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["DEFAULT_CONFIG", "PGConfig", "PGTrainer"]

PGTrainer = trainer_class("PG")
DEFAULT_CONFIG = default_config("PG")
PGConfig = rllib.PGConfig
