"""A2C, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import trainer_class

__all__ = ["A2C", "A2CConfig"]

A2C = trainer_class("A2C")
A2CConfig = rllib.A2CConfig
