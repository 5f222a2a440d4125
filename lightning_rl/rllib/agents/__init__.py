"""RLlib's trainers."""

from lightning_rl.rllib.agents.callbacks import DefaultCallbacks
from lightning_rl.rllib.trainers import Trainer

__all__ = ["DefaultCallbacks", "Trainer"]
