"""What feeds the Trainer: execution plans, datasets, and the DataModule that owns all state of the data side."""

from __future__ import annotations

from lightning_rl.data.datamodule import EpisodeWindow, RolloutDataModule
from lightning_rl.data.datasets import EvaluationDataset, OnPolicyDataset
from lightning_rl.data.execution import concat_batches, concurrently, for_each, parallel_rollouts, take
from lightning_rl.data.local_replay_buffer import LocalReplayBuffer
from lightning_rl.data.replay_optimizer import SyncReplayOptimizer
from lightning_rl.data.samples_optimizer import AsyncGradientsOptimizer, AsyncSamplesOptimizer, SyncSamplesOptimizer

__all__ = [
    "AsyncGradientsOptimizer",
    "AsyncSamplesOptimizer",
    "EpisodeWindow",
    "EvaluationDataset",
    "LocalReplayBuffer",
    "OnPolicyDataset",
    "RolloutDataModule",
    "SyncReplayOptimizer",
    "SyncSamplesOptimizer",
    "concat_batches",
    "concurrently",
    "for_each",
    "parallel_rollouts",
    "take",
]
