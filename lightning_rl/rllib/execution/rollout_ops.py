"""Operators that collect experience."""

from lightning_rl.rllib.plan_operators import AsyncGradients
from lightning_rl.rllib.plans import (
    ConcatBatches,
    ParallelRollouts,
    SelectExperiences,
    StandardizeFields,
    standardize_fields,
    synchronous_parallel_sample,
)

__all__ = [
    "AsyncGradients",
    "ConcatBatches",
    "ParallelRollouts",
    "SelectExperiences",
    "StandardizeFields",
    "standardize_fields",
    "synchronous_parallel_sample",
]
