"""What feeds the Trainer: execution plans, datasets, and the DataModule that owns all state of the data side."""

from __future__ import annotations

from lightning_rl.data.datamodule import EpisodeWindow, RolloutDataModule
from lightning_rl.data.datasets import EvaluationDataset, PlanDataset
from lightning_rl.data.plans import concat_batches, concurrently, for_each, parallel_rollouts, take

__all__ = [
    "EpisodeWindow",
    "EvaluationDataset",
    "PlanDataset",
    "RolloutDataModule",
    "concat_batches",
    "concurrently",
    "for_each",
    "parallel_rollouts",
    "take",
]
