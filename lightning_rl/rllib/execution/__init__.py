"""RLlib's operators of execution plans."""

from lightning_rl.rllib.local_replay_buffer import LocalReplayBuffer
from lightning_rl.rllib.plans import (
    ConcatBatches,
    Concurrently,
    ParallelRollouts,
    Replay,
    StandardMetricsReporting,
    StoreToReplayBuffer,
    TrainOneStep,
    UpdateTargetNetwork,
)

__all__ = [
    "ConcatBatches",
    "Concurrently",
    "LocalReplayBuffer",
    "ParallelRollouts",
    "Replay",
    "StandardMetricsReporting",
    "StoreToReplayBuffer",
    "TrainOneStep",
    "UpdateTargetNetwork",
]
