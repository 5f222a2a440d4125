"""Soft actor-critic."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["DEFAULT_CONFIG", "SACTrainer"]

SACTrainer = trainer_class("SAC")
DEFAULT_CONFIG = default_config("SAC")
