"""PPO, APPO and DD-PPO."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["DEFAULT_CONFIG", "APPOTrainer"]

APPOTrainer = trainer_class("APPO")
DEFAULT_CONFIG = default_config("APPO")
