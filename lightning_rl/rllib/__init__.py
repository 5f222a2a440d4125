"""For people who come from RLlib: its names and config keys, each mapped to what it is here.

`PPOTrainer(env="CartPole-v0", config={"train_batch_size": 4000}).train()`; there is a `NAMETrainer` and a
`NAMETorchPolicy` for every policy of `conf/policy`. Nothing here acts or learns: the classes are this package's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from lightning_rl.config.groups import group_options
from lightning_rl.envs import EnvContext, register_env  # noqa: F401
from lightning_rl.envs.multi_agent import MultiAgentEnv, make_multi_agent  # noqa: F401
from lightning_rl.rllib.algorithm_config import AlgorithmConfig
from lightning_rl.rllib.build_policy import build_policy  # noqa: F401
from lightning_rl.rllib.by_name import policy_class, trainer_class
from lightning_rl.rllib.callbacks import DefaultCallbacks  # noqa: F401
from lightning_rl.rllib.experiments import results_until
from lightning_rl.rllib.local_replay_buffer import LocalReplayBuffer
from lightning_rl.rllib.models import (  # noqa: F401
    MODEL_DEFAULTS,
    ActionDistribution,
    ModelCatalog,
    ModelV2,
    Preprocessor,
)
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2  # noqa: F401
from lightning_rl.rllib.multi_agent_keys import PolicySpec  # noqa: F401
from lightning_rl.rllib.plan_operators import *  # noqa: F403
from lightning_rl.rllib.plans import *  # noqa: F403
from lightning_rl.rllib.replay_optimizer import SyncReplayOptimizer  # noqa: F401
from lightning_rl.rllib.sample_batch import MultiAgentBatch, SampleBatch, concat_samples  # noqa: F401
from lightning_rl.rllib.samples_optimizer import (  # noqa: F401
    AsyncGradientsOptimizer,
    AsyncSamplesOptimizer,
    SyncSamplesOptimizer,
)
from lightning_rl.rllib.torch_policy import Policy, TorchPolicy, build_torch_policy  # noqa: F401
from lightning_rl.rllib.trainable import register_by_name
from lightning_rl.rllib.trainers import Trainer, build_trainer, defaults_of, torch_policy  # noqa: F401
from lightning_rl.rollouts import RolloutWorker, WorkerSet  # noqa: F401

PolicyEvaluator = RolloutWorker
ReplayActor = LocalReplayBuffer
Algorithm = Trainer


def run(trainable: Any, *, stop: Any, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Train a trainer class (or "PPO") until `stop`, as `tune.run`; the last result.

    Args:
        trainable, config: the class and its config.
        stop: as `results_until`.

    Raises:
        ConfigError: `stop` has a name that no result has.
    """
    trainer = (trainer_class(trainable) if isinstance(trainable, str) else trainable)(config=config)
    try:
        *_, last = results_until(trainer, stop)
    finally:
        trainer.stop()
    return last


tune = SimpleNamespace(run=run)


def __getattr__(name: str) -> Any:
    """`PPOTrainer`, `PPOConfig`, `PPOTorchPolicy` and `PPOPolicyGraph`, for each policy that there is."""
    if (found := re.fullmatch(r"(\w+?)(Trainer|Config|TorchPolicy|PolicyGraph)", name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if found[2] in ("TorchPolicy", "PolicyGraph"):
        return policy_class(found[1])
    trainer = trainer_class(found[1])
    return partial(AlgorithmConfig, trainer) if found[2] == "Config" else trainer


register_by_name(
    (name, trainer_class(name))
    for name in ("SimpleQ", *(option.replace("_", "").upper() for option in group_options("policy")))
)
