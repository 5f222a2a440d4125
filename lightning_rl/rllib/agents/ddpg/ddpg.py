"""DDPG and TD3."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["DEFAULT_CONFIG", "DDPGTrainer"]

DDPGTrainer = trainer_class("DDPG")
DEFAULT_CONFIG = default_config("DDPG")
