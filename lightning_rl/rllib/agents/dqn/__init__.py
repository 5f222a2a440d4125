"""DQN and what is made of it."""

from lightning_rl.rllib.agents.dqn.apex import APEX_DEFAULT_CONFIG
from lightning_rl.rllib.agents.dqn.dqn import GenericOffPolicyTrainer
from lightning_rl.rllib.agents.dqn.r2d2 import R2D2_DEFAULT_CONFIG
from lightning_rl.rllib.agents.dqn.simple_q import DEFAULT_CONFIG as SIMPLE_Q_DEFAULT_CONFIG
from lightning_rl.rllib.by_name import default_config, policy_class, trainer_class

__all__ = [
    "APEX_DEFAULT_CONFIG",
    "DEFAULT_CONFIG",
    "R2D2_DEFAULT_CONFIG",
    "SIMPLE_Q_DEFAULT_CONFIG",
    "ApexTrainer",
    "DQNTorchPolicy",
    "DQNTrainer",
    "GenericOffPolicyTrainer",
    "R2D2TorchPolicy",
    "R2D2Trainer",
    "RainbowTrainer",
    "SimpleQTorchPolicy",
    "SimpleQTrainer",
]

DQNTrainer = trainer_class("DQN")
SimpleQTrainer = trainer_class("SimpleQ")
ApexTrainer = trainer_class("Apex")
R2D2Trainer = trainer_class("R2D2")
RainbowTrainer = trainer_class("Rainbow")
DQNTorchPolicy = policy_class("DQN")
SimpleQTorchPolicy = policy_class("SimpleQ")
R2D2TorchPolicy = policy_class("R2D2")
DEFAULT_CONFIG = default_config("DQN")
