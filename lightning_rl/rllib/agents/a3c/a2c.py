"""A3C and A2C."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["A2C_DEFAULT_CONFIG", "A2CTrainer"]

A2CTrainer = trainer_class("A2C")
A2C_DEFAULT_CONFIG = default_config("A2C")
