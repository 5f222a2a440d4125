"""RLlib's base of trainers."""

from lightning_rl.rllib.trainers import Trainer

__all__ = ["Trainer"]
