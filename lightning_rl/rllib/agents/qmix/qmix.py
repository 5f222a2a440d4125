"""QMIX."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["DEFAULT_CONFIG", "QMixTrainer"]

QMixTrainer = trainer_class("QMix")
DEFAULT_CONFIG = default_config("QMix")
