"""PPO, APPO and DD-PPO."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import default_config, policy_class, trainer_class

__all__ = [
    "DEFAULT_CONFIG",
    "APPOTorchPolicy",
    "APPOTrainer",
    "DDPPOTrainer",
    "PPOConfig",
    "PPOTorchPolicy",
    "PPOTrainer",
]

PPOTrainer = trainer_class("PPO")
APPOTrainer = trainer_class("APPO")
DDPPOTrainer = trainer_class("DDPPO")
PPOTorchPolicy = policy_class("PPO")
APPOTorchPolicy = policy_class("APPO")
DEFAULT_CONFIG = default_config("PPO")
PPOConfig = rllib.PPOConfig
