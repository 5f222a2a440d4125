"""Operators that learn."""

from lightning_rl.rllib.plans import TrainOneStep, UpdateTargetNetwork

__all__ = ["TrainOneStep", "UpdateTargetNetwork"]
