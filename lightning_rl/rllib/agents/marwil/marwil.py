"""MARWIL and behavior cloning."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["DEFAULT_CONFIG", "MARWILTrainer"]

MARWILTrainer = trainer_class("MARWIL")
DEFAULT_CONFIG = default_config("MARWIL")
