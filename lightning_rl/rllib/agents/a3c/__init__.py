"""A3C and A2C."""

from lightning_rl.rllib.by_name import default_config, policy_class, trainer_class

__all__ = ["DEFAULT_CONFIG", "A2CTorchPolicy", "A2CTrainer", "A3CTorchPolicy", "A3CTrainer"]

A3CTrainer = trainer_class("A3C")
A2CTrainer = trainer_class("A2C")
A3CTorchPolicy = policy_class("A3C")
A2CTorchPolicy = policy_class("A2C")
DEFAULT_CONFIG = default_config("A3C")
