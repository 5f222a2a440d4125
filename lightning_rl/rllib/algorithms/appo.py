"""APPO, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import policy_class, trainer_class

__all__ = ["APPO", "APPOConfig", "APPOTorchPolicy"]

APPO = trainer_class("APPO")
APPOTorchPolicy = policy_class("APPO")
APPOConfig = rllib.APPOConfig
