"""RLlib's path of `SyncSamplesOptimizer`."""

from lightning_rl.rllib.samples_optimizer import SyncSamplesOptimizer

__all__ = ["SyncSamplesOptimizer"]
