"""RLlib's rollout workers and their batches."""

from lightning_rl.rllib.sample_batch import MultiAgentBatch, SampleBatch
from lightning_rl.rollouts import RolloutWorker, WorkerSet
from lightning_rl.rollouts import RolloutWorker as PolicyEvaluator

__all__ = ["MultiAgentBatch", "PolicyEvaluator", "RolloutWorker", "SampleBatch", "WorkerSet"]
