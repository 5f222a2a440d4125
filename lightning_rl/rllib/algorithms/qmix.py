"""QMIX, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import trainer_class

__all__ = ["QMix", "QMixConfig"]

QMix = trainer_class("QMix")
QMixConfig = rllib.QMixConfig
