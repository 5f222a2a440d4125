"""MARWIL and behavior cloning."""

from lightning_rl.rllib.agents.marwil.bc import BC_DEFAULT_CONFIG
from lightning_rl.rllib.by_name import default_config, policy_class, trainer_class

__all__ = ["BC_DEFAULT_CONFIG", "DEFAULT_CONFIG", "BCTrainer", "MARWILTorchPolicy", "MARWILTrainer"]

MARWILTrainer = trainer_class("MARWIL")
BCTrainer = trainer_class("BC")
MARWILTorchPolicy = policy_class("MARWIL")
DEFAULT_CONFIG = default_config("MARWIL")
