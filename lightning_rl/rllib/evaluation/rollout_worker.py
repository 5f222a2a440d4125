"""RLlib's rollout worker."""

from lightning_rl.rollouts import RolloutWorker

__all__ = ["RolloutWorker"]
