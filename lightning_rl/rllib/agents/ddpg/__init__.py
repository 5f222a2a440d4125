"""DDPG and TD3."""

from lightning_rl.rllib.by_name import default_config, policy_class, trainer_class

__all__ = ["DEFAULT_CONFIG", "DDPGTorchPolicy", "DDPGTrainer", "TD3TorchPolicy", "TD3Trainer"]

DDPGTrainer = trainer_class("DDPG")
TD3Trainer = trainer_class("TD3")
DDPGTorchPolicy = policy_class("DDPG")
TD3TorchPolicy = policy_class("TD3")
DEFAULT_CONFIG = default_config("DDPG")
