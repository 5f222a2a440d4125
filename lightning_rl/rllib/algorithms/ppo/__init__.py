"""PPO, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import policy_class, trainer_class

__all__ = ["PPO", "PPOConfig", "PPOTorchPolicy"]

PPO = trainer_class("PPO")
PPOTorchPolicy = policy_class("PPO")
PPOConfig = rllib.PPOConfig
