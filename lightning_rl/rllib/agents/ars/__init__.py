"""Augmented random search."""

from lightning_rl.rllib.by_name import default_config, policy_class, trainer_class

__all__ = ["DEFAULT_CONFIG", "ARSTorchPolicy", "ARSTrainer"]

ARSTrainer = trainer_class("ARS")
ARSTorchPolicy = policy_class("ARS")
DEFAULT_CONFIG = default_config("ARS")
