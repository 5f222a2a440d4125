"""DQN and what is made of it."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["APEX_DEFAULT_CONFIG", "ApexTrainer"]

ApexTrainer = trainer_class("Apex")
APEX_DEFAULT_CONFIG = default_config("Apex")
