"""R2D2."""

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["R2D2_DEFAULT_CONFIG", "R2D2Trainer"]

R2D2Trainer = trainer_class("R2D2")
R2D2_DEFAULT_CONFIG = default_config("R2D2")
