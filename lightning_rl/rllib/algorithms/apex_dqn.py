"""Ape-X DQN, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import trainer_class

__all__ = ["ApexDQN", "ApexDQNConfig"]

ApexDQN = trainer_class("Apex")
ApexDQNConfig = rllib.ApexConfig
