"""R2D2, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import policy_class, trainer_class

__all__ = ["R2D2", "R2D2Config", "R2D2TorchPolicy"]

R2D2 = trainer_class("R2D2")
R2D2TorchPolicy = policy_class("R2D2")
R2D2Config = rllib.R2D2Config
