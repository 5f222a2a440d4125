"""RLlib's policy optimizers."""

from lightning_rl.rllib.replay_optimizer import SyncReplayOptimizer
from lightning_rl.rllib.samples_optimizer import (
    AsyncGradientsOptimizer,
    AsyncSamplesOptimizer,
    PolicyOptimizer,
    SyncSamplesOptimizer,
)

__all__ = [
    "AsyncGradientsOptimizer",
    "AsyncSamplesOptimizer",
    "PolicyOptimizer",
    "SyncReplayOptimizer",
    "SyncSamplesOptimizer",
]
