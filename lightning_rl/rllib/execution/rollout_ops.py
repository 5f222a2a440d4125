"""Operators that collect experience."""

from lightning_rl.rllib.plan_operators import AsyncGradients
from lightning_rl.rllib.plans import ConcatBatches, ParallelRollouts, SelectExperiences, StandardizeFields

__all__ = ["AsyncGradients", "ConcatBatches", "ParallelRollouts", "SelectExperiences", "StandardizeFields"]
