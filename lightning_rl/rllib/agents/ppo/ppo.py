"""PPO, APPO and DD-PPO."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import default_config, trainer_class
from lightning_rl.rllib.plan_operators import UpdateKL

__all__ = ["DEFAULT_CONFIG", "PPOConfig", "PPOTrainer", "UpdateKL"]

PPOTrainer = trainer_class("PPO")
DEFAULT_CONFIG = default_config("PPO")
PPOConfig = rllib.PPOConfig
