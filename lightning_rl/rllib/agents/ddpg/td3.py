"""DDPG and TD3."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["TD3_DEFAULT_CONFIG", "TD3Trainer"]

TD3Trainer = trainer_class("TD3")
TD3_DEFAULT_CONFIG = default_config("TD3")
