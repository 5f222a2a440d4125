"""DQN, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import policy_class, trainer_class

__all__ = ["DQN", "DQNConfig", "DQNTorchPolicy"]

DQN = trainer_class("DQN")
DQNTorchPolicy = policy_class("DQN")
DQNConfig = rllib.DQNConfig
