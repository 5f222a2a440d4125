"""DDPG, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import policy_class, trainer_class

__all__ = ["DDPG", "DDPGConfig", "DDPGTorchPolicy"]

DDPG = trainer_class("DDPG")
DDPGTorchPolicy = policy_class("DDPG")
DDPGConfig = rllib.DDPGConfig
