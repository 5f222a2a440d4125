"""Soft actor-critic, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import policy_class, trainer_class

__all__ = ["RNNSAC", "SAC", "RNNSACConfig", "SACConfig", "SACTorchPolicy"]

RNNSAC = trainer_class("RecurrentSAC")
SAC = trainer_class("SAC")
SACTorchPolicy = policy_class("SAC")
RNNSACConfig = rllib.RecurrentSACConfig
SACConfig = rllib.SACConfig
