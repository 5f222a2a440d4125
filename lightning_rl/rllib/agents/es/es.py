"""Evolution strategies."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["DEFAULT_CONFIG", "ESTrainer"]

ESTrainer = trainer_class("ES")
DEFAULT_CONFIG = default_config("ES")
