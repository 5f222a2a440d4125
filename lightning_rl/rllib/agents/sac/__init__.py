"""Soft actor-critic."""

from lightning_rl.rllib.agents.sac.rnnsac import RNNSAC_DEFAULT_CONFIG, RNNSACTrainer
from lightning_rl.rllib.by_name import default_config, policy_class, trainer_class

__all__ = ["DEFAULT_CONFIG", "RNNSAC_DEFAULT_CONFIG", "RNNSACTrainer", "SACTorchPolicy", "SACTrainer"]

SACTrainer = trainer_class("SAC")
SACTorchPolicy = policy_class("SAC")
DEFAULT_CONFIG = default_config("SAC")
