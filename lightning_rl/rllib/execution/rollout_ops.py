"""Operators that collect experience."""

from lightning_rl.rllib.plans import ConcatBatches, ParallelRollouts

__all__ = ["ConcatBatches", "ParallelRollouts"]
