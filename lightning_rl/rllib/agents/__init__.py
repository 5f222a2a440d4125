"""RLlib's trainers."""

from lightning_rl.rllib.agents.callbacks import DefaultCallbacks
from lightning_rl.rllib.agents.trainer import Trainer, with_common_config

__all__ = ["DefaultCallbacks", "Trainer", "with_common_config"]
