"""For people who come from RLlib: its names and config keys, each mapped to what it is here.

`PPOTrainer(env="CartPole-v0", config={"train_batch_size": 4000}).train()`; there is a `NAMETrainer` and a
`NAMETorchPolicy` for every policy of `conf/policy`. Nothing here acts or learns: the classes are this package's own.
"""

from __future__ import annotations

import re
from typing import Any

from lightning_rl.config.groups import group_options
from lightning_rl.envs import EnvContext, register_env
from lightning_rl.rllib import plan_operators, plans
from lightning_rl.rllib.algorithm_config import AlgorithmConfig
from lightning_rl.rllib.build_policy import build_policy
from lightning_rl.rllib.by_name import config_class, policy_class, trainer_class
from lightning_rl.rllib.callbacks import DefaultCallbacks, Episode, MultiCallbacks
from lightning_rl.rllib.env.multi_agent_env import MultiAgentEnv, make_multi_agent
from lightning_rl.rllib.evaluation.rollout_worker import RolloutWorker
from lightning_rl.rllib.evaluation.worker_set import WorkerSet
from lightning_rl.rllib.local_replay_buffer import LocalReplayBuffer
from lightning_rl.rllib.mixins import EntropyCoeffSchedule, KLCoeffMixin, LearningRateSchedule, ValueNetworkMixin
from lightning_rl.rllib.models import (
    MODEL_DEFAULTS,
    ActionDistribution,
    ModelCatalog,
    ModelV2,
    Preprocessor,
)
from lightning_rl.rllib.models.action_dist import TupleActions
from lightning_rl.rllib.models.torch.fcnet import FullyConnectedNetwork
from lightning_rl.rllib.models.torch.recurrent_net import RecurrentNetwork
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2
from lightning_rl.rllib.models.torch.visionnet import VisionNetwork
from lightning_rl.rllib.multi_agent_keys import PolicySpec
from lightning_rl.rllib.plan_operators import *  # noqa: F403
from lightning_rl.rllib.plans import *  # noqa: F403
from lightning_rl.rllib.q_losses import QLoss, build_q_losses
from lightning_rl.rllib.replay_optimizer import SyncReplayOptimizer
from lightning_rl.rllib.sample_batch import MultiAgentBatch, SampleBatch, concat_samples
from lightning_rl.rllib.samples_optimizer import (
    AsyncGradientsOptimizer,
    AsyncSamplesOptimizer,
    PolicyOptimizer,
    SyncSamplesOptimizer,
)
from lightning_rl.rllib.torch_policy import Policy, TorchPolicy, build_torch_policy
from lightning_rl.rllib.trainable import register_by_name
from lightning_rl.rllib.trainers import Trainer, build_trainer
from lightning_rl.rllib.workers import BaseEnv

__all__ = [
    *plan_operators.__all__,
    *plans.__all__,
    "MODEL_DEFAULTS",
    "ActionDistribution",
    "Algorithm",
    "AlgorithmConfig",
    "AsyncGradientsOptimizer",
    "AsyncSamplesOptimizer",
    "BaseEnv",
    "DefaultCallbacks",
    "EntropyCoeffSchedule",
    "EnvContext",
    "Episode",
    "FullyConnectedNetwork",
    "KLCoeffMixin",
    "LearningRateSchedule",
    "LocalReplayBuffer",
    "ModelCatalog",
    "ModelV2",
    "MultiAgentBatch",
    "MultiAgentEnv",
    "MultiCallbacks",
    "Policy",
    "PolicyEvaluator",
    "PolicyGraph",
    "PolicyOptimizer",
    "PolicySpec",
    "Preprocessor",
    "QLoss",
    "RecurrentNetwork",
    "ReplayActor",
    "RolloutWorker",
    "SampleBatch",
    "SyncReplayOptimizer",
    "SyncSamplesOptimizer",
    "TorchDistributionWrapper",
    "TorchModelV2",
    "TorchPolicy",
    "TorchPolicyGraph",
    "Trainer",
    "TupleActions",
    "ValueNetworkMixin",
    "VisionNetwork",
    "WorkerSet",
    "build_policy",
    "build_policy_class",
    "build_q_losses",
    "build_torch_policy",
    "build_trainer",
    "concat_samples",
    "make_multi_agent",
    "register_env",
]

PolicyEvaluator = RolloutWorker
ReplayActor = LocalReplayBuffer
Algorithm = Trainer
TorchDistributionWrapper = ActionDistribution
PolicyGraph, TorchPolicyGraph, build_policy_class = Policy, TorchPolicy, build_torch_policy


def __getattr__(name: str) -> Any:
    """`PPOTrainer`, `PPOConfig`, `PPOTorchPolicy` and `PPOPolicyGraph`, for each policy that there is."""
    if found := re.fullmatch(r"(\w+?)(Trainer|Config|TorchPolicy|PolicyGraph)", name):
        if found[2] in ("TorchPolicy", "PolicyGraph"):
            return policy_class(found[1])
        return config_class(found[1]) if found[2] == "Config" else trainer_class(found[1])
    if twin := re.fullmatch(r"(\w*?)TF(Policy|ModelV2)|(build)_tf_(policy)", name):
        torch_name = f"{twin[1]}Torch{twin[2]}" if twin[2] else "build_torch_policy"
        raise AttributeError(f"{name}: there is no TensorFlow here; {torch_name} does the same in PyTorch")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


register_by_name(
    (name, trainer_class(name))
    for name in ("SimpleQ", *(option.replace("_", "").upper() for option in group_options("policy")))
)
