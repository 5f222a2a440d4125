"""PPO, APPO and DD-PPO."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["DEFAULT_CONFIG", "DDPPOTrainer"]

DDPPOTrainer = trainer_class("DDPPO")
DEFAULT_CONFIG = default_config("DDPPO")
