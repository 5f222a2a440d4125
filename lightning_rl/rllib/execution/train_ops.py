"""Operators that learn."""

from lightning_rl.rllib.plan_operators import ApplyGradients, AverageGradients, ComputeGradients
from lightning_rl.rllib.plans import MultiGPUTrainOneStep, TrainOneStep, UpdateTargetNetwork

__all__ = [
    "ApplyGradients",
    "AverageGradients",
    "ComputeGradients",
    "MultiGPUTrainOneStep",
    "TrainOneStep",
    "UpdateTargetNetwork",
]
