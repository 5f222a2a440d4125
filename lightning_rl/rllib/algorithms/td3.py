"""TD3, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import trainer_class

__all__ = ["TD3", "TD3Config"]

TD3 = trainer_class("TD3")
TD3Config = rllib.TD3Config
