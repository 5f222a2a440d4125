"""What feeds the Trainer: execution plans, datasets, and the DataModule that owns all state of the data side."""

from __future__ import annotations

from lightning_rl.data.datamodule import EpisodeWindow, RolloutDataModule
from lightning_rl.data.datasets import EvaluationDataset, OnPolicyDataset
from lightning_rl.data.execution import concat_batches, concurrently, for_each, parallel_rollouts, take
from lightning_rl.data.hindsight import HindsightReplayBuffer
from lightning_rl.data.local_replay_buffer import LocalReplayBuffer
from lightning_rl.data.prioritized import PrioritizedReplayBuffer
from lightning_rl.data.replay import ReplayBuffer
from lightning_rl.data.replay_optimizer import SyncReplayOptimizer
from lightning_rl.data.reservoir import ReservoirReplayBuffer
from lightning_rl.data.samples_optimizer import AsyncGradientsOptimizer, AsyncSamplesOptimizer, SyncSamplesOptimizer
from lightning_rl.data.sequence_replay import PrioritizedSequenceReplayBuffer, SequenceReplayBuffer
from lightning_rl.data.storage import check_fits_memory, estimated_bytes

__all__ = [
    "AsyncGradientsOptimizer",
    "AsyncSamplesOptimizer",
    "EpisodeWindow",
    "EvaluationDataset",
    "HindsightReplayBuffer",
    "LocalReplayBuffer",
    "OnPolicyDataset",
    "PrioritizedReplayBuffer",
    "PrioritizedSequenceReplayBuffer",
    "ReplayBuffer",
    "ReservoirReplayBuffer",
    "RolloutDataModule",
    "SequenceReplayBuffer",
    "SyncReplayOptimizer",
    "SyncSamplesOptimizer",
    "check_fits_memory",
    "concat_batches",
    "concurrently",
    "estimated_bytes",
    "for_each",
    "parallel_rollouts",
    "take",
]
