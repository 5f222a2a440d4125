"""Reinforcement learning on Lightning, Ray and Hydra.

Public names load when first used, so importing the package is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning_rl.algorithm import Algorithm
    from lightning_rl.callbacks import RLCallback
    from lightning_rl.data.datamodule import RolloutDataModule
    from lightning_rl.exploration import Exploration
    from lightning_rl.models.catalog import MODEL_DEFAULTS, ModelCatalog
    from lightning_rl.models.distributions import ActionDistribution
    from lightning_rl.models.model import Model
    from lightning_rl.multi_agent_batch import MultiAgentBatch
    from lightning_rl.policies import A2C, PG, PPO, Policy, build_policy
    from lightning_rl.rollouts.envs import EnvCreator
    from lightning_rl.rollouts.registry import EnvContext, register_env
    from lightning_rl.rollouts.rollout_worker import RolloutWorker
    from lightning_rl.rollouts.worker_set import WorkerSet
    from lightning_rl.sample_batch import SampleBatch, concat_samples

__all__ = [
    "A2C",
    "MODEL_DEFAULTS",
    "PG",
    "PPO",
    "ActionDistribution",
    "Algorithm",
    "EnvContext",
    "EnvCreator",
    "Exploration",
    "Model",
    "ModelCatalog",
    "MultiAgentBatch",
    "Policy",
    "RLCallback",
    "RolloutDataModule",
    "RolloutWorker",
    "SampleBatch",
    "WorkerSet",
    "build_policy",
    "concat_samples",
    "register_env",
]

__version__ = "0.1.0"

_HOMES = {
    "A2C": "policies",
    "MODEL_DEFAULTS": "models.catalog",
    "PG": "policies",
    "PPO": "policies",
    "ActionDistribution": "models.distributions",
    "Algorithm": "algorithm",
    "EnvContext": "rollouts.registry",
    "EnvCreator": "rollouts.envs",
    "Exploration": "exploration",
    "Model": "models.model",
    "ModelCatalog": "models.catalog",
    "MultiAgentBatch": "multi_agent_batch",
    "Policy": "policies",
    "RLCallback": "callbacks",
    "RolloutDataModule": "data.datamodule",
    "RolloutWorker": "rollouts.rollout_worker",
    "SampleBatch": "sample_batch",
    "WorkerSet": "rollouts.worker_set",
    "build_policy": "policies",
    "concat_samples": "sample_batch",
    "register_env": "rollouts.registry",
}


def __getattr__(name: str) -> Any:
    """Import the module that holds a public name (PEP 562)."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
