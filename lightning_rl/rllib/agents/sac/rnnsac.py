"""Soft actor-critic with a memory."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["RNNSAC_DEFAULT_CONFIG", "RNNSACTrainer"]

RNNSACTrainer = trainer_class("RecurrentSAC")
RNNSAC_DEFAULT_CONFIG = default_config("RecurrentSAC")
