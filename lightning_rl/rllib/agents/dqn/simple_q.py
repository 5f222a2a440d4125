"""DQN and what is made of it."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["DEFAULT_CONFIG", "SimpleQTrainer"]

SimpleQTrainer = trainer_class("SimpleQ")
DEFAULT_CONFIG = default_config("SimpleQ")
