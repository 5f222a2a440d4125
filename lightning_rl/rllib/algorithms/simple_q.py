"""Simple Q-learning, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import policy_class, trainer_class

__all__ = ["SimpleQ", "SimpleQConfig", "SimpleQTorchPolicy"]

SimpleQ = trainer_class("SimpleQ")
SimpleQTorchPolicy = policy_class("SimpleQ")
SimpleQConfig = rllib.SimpleQConfig
