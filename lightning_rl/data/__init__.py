"""DataModules, which own all state of the data side, with the datasets and execution plans that feed the Trainer."""

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
