"""Behavior cloning, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import trainer_class

__all__ = ["BC", "BCConfig"]

BC = trainer_class("BC")
BCConfig = rllib.BCConfig
