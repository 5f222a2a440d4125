"""RLlib's trainers by their newer name."""

from lightning_rl.rllib.agents.callbacks import DefaultCallbacks
from lightning_rl.rllib.trainers import Trainer as Algorithm

__all__ = ["Algorithm", "DefaultCallbacks"]
