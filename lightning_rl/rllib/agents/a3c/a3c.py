"""A3C and A2C."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["DEFAULT_CONFIG", "A3CTrainer"]

A3CTrainer = trainer_class("A3C")
DEFAULT_CONFIG = default_config("A3C")
