"""Operators that learn."""

from lightning_rl.rllib.plan_operators import ApplyGradients, AverageGradients, ComputeGradients
from lightning_rl.rllib.plans import (
    MultiGPUTrainOneStep,
    TrainOneStep,
    UpdateTargetNetwork,
    multi_gpu_train_one_step,
    train_one_step,
)

__all__ = [
    "ApplyGradients",
    "AverageGradients",
    "ComputeGradients",
    "MultiGPUTrainOneStep",
    "TrainOneStep",
    "UpdateTargetNetwork",
    "multi_gpu_train_one_step",
    "train_one_step",
]
