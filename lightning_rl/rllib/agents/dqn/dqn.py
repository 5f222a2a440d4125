"""DQN and what is made of it."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["DEFAULT_CONFIG", "DQNTrainer", "GenericOffPolicyTrainer"]

DQNTrainer = trainer_class("DQN")
DEFAULT_CONFIG = default_config("DQN")
GenericOffPolicyTrainer = DQNTrainer.with_updates("GenericOffPolicyTrainer", default_policy=None)
