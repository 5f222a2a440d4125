"""RLlib's trainers made of parts."""

from lightning_rl.rllib.trainers import build_trainer

__all__ = ["build_trainer"]
