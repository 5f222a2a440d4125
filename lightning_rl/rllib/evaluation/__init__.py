"""RLlib's rollout workers and their batches."""

from lightning_rl.rllib.callbacks import Episode
from lightning_rl.rllib.callbacks import Episode as MultiAgentEpisode
from lightning_rl.rllib.evaluation.metrics import collect_metrics
from lightning_rl.rllib.evaluation.policy_graph import PolicyGraph
from lightning_rl.rllib.evaluation.postprocessing import compute_advantages
from lightning_rl.rllib.evaluation.rollout_worker import RolloutWorker
from lightning_rl.rllib.evaluation.rollout_worker import RolloutWorker as PolicyEvaluator
from lightning_rl.rllib.evaluation.sample_batch_builder import MultiAgentSampleBatchBuilder, SampleBatchBuilder
from lightning_rl.rllib.evaluation.torch_policy_graph import TorchPolicyGraph
from lightning_rl.rllib.evaluation.worker_set import WorkerSet
from lightning_rl.rllib.sample_batch import MultiAgentBatch, SampleBatch

__all__ = [
    "Episode",
    "MultiAgentBatch",
    "MultiAgentEpisode",
    "MultiAgentSampleBatchBuilder",
    "PolicyEvaluator",
    "PolicyGraph",
    "RolloutWorker",
    "SampleBatch",
    "SampleBatchBuilder",
    "TorchPolicyGraph",
    "WorkerSet",
    "collect_metrics",
    "compute_advantages",
]
