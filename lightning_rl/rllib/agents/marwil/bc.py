"""MARWIL and behavior cloning."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["BC_DEFAULT_CONFIG", "BCTrainer"]

BCTrainer = trainer_class("BC")
BC_DEFAULT_CONFIG = default_config("BC")
