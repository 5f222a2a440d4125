"""Augmented random search, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import policy_class, trainer_class

__all__ = ["ARS", "ARSConfig", "ARSTorchPolicy"]

ARS = trainer_class("ARS")
ARSTorchPolicy = policy_class("ARS")
ARSConfig = rllib.ARSConfig
