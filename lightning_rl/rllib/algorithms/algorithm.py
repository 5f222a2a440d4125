"""RLlib's base of trainers by its newer name."""

from lightning_rl.rllib.trainers import Trainer as Algorithm

__all__ = ["Algorithm"]
