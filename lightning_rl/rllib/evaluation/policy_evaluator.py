"""RLlib's rollout worker by its first name."""

from lightning_rl.rllib.evaluation.rollout_worker import RolloutWorker as PolicyEvaluator

__all__ = ["PolicyEvaluator"]
