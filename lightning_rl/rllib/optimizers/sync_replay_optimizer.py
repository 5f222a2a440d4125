"""RLlib's path of `SyncReplayOptimizer`."""

from lightning_rl.rllib.replay_optimizer import SyncReplayOptimizer

__all__ = ["SyncReplayOptimizer"]
