"""A3C, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import policy_class, trainer_class

__all__ = ["A3C", "A3CConfig", "A3CTorchPolicy"]

A3C = trainer_class("A3C")
A3CTorchPolicy = policy_class("A3C")
A3CConfig = rllib.A3CConfig
