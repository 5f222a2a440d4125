"""Augmented random search."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["DEFAULT_CONFIG", "ARSTrainer"]

ARSTrainer = trainer_class("ARS")
DEFAULT_CONFIG = default_config("ARS")
