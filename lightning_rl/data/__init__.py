"""The DataModule, which owns all state of the data side, with its sources, feeds, datasets and execution plans."""

from __future__ import annotations

from lightning_rl.data.async_source import AsyncSource
from lightning_rl.data.datamodule import EpisodeWindow, ReplayDataModule, RolloutDataModule
from lightning_rl.data.datasets import EvaluationDataset, PlanDataset
from lightning_rl.data.gradient_source import GradientSource
from lightning_rl.data.hindsight_feed import HindsightFeed
from lightning_rl.data.plans import parallel_rollouts
from lightning_rl.data.population_source import PopulationSource
from lightning_rl.data.replay_feed import ReplayFeed
from lightning_rl.data.sharded_feed import ShardedReplayFeed
from lightning_rl.data.source import Source, SyncSource

__all__ = [
    "AsyncSource",
    "EpisodeWindow",
    "EvaluationDataset",
    "GradientSource",
    "HindsightFeed",
    "PlanDataset",
    "PopulationSource",
    "ReplayDataModule",
    "ReplayFeed",
    "RolloutDataModule",
    "ShardedReplayFeed",
    "Source",
    "SyncSource",
    "parallel_rollouts",
]
