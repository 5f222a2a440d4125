"""RLlib's rollout worker by its first name."""

from lightning_rl.rollouts import RolloutWorker as PolicyEvaluator

__all__ = ["PolicyEvaluator"]
