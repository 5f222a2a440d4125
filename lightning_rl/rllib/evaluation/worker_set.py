"""RLlib's set of rollout workers."""

from lightning_rl.rollouts import WorkerSet

__all__ = ["WorkerSet"]
