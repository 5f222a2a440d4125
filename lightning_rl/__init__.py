"""Reinforcement learning on Lightning, Ray and Hydra.

Public names load when first used, so importing the package is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lightning_rl.version import __version__ as __version__

if TYPE_CHECKING:
    from lightning_rl.callbacks import RLCallback
    from lightning_rl.data.datamodule import ReplayDataModule, RolloutDataModule
    from lightning_rl.envs.creator import EnvCreator
    from lightning_rl.envs.multi_agent import MultiAgentEnv
    from lightning_rl.envs.registry import EnvContext, register_env
    from lightning_rl.exploration import Exploration
    from lightning_rl.models.catalog import MODEL_DEFAULTS, ModelCatalog
    from lightning_rl.models.distributions import ActionDistribution
    from lightning_rl.models.model import Model
    from lightning_rl.policies import (
        A2C,
        A3C,
        APPO,
        ARS,
        AWAC,
        BC,
        CQL,
        DDPG,
        DQN,
        ES,
        IMPALA,
        IQL,
        MADDPG,
        MARWIL,
        MATD3,
        PG,
        PPO,
        PQN,
        PQNVDN,
        QMIX,
        R2D2,
        SAC,
        TD3,
        TD3BC,
        TQC,
        VDN,
        XQC,
        ApexDQN,
        CrossQ,
        DiscreteCQL,
        IndependentQ,
        Policy,
        PolicySet,
        Rainbow,
        RandomPolicy,
        ReBRAC,
        RecurrentSAC,
        ScratchPolicy,
        ScriptedPolicy,
        SimpleQ,
    )
    from lightning_rl.rllib.build_policy import build_policy
    from lightning_rl.rollouts.worker_set import RolloutWorker, WorkerSet
    from lightning_rl.runs.algorithm import Algorithm
    from lightning_rl.sample_batch import MultiAgentBatch, SampleBatch, concat_samples

__all__ = [
    "A2C",
    "A3C",
    "APPO",
    "ARS",
    "AWAC",
    "BC",
    "CQL",
    "DDPG",
    "DQN",
    "ES",
    "IMPALA",
    "IQL",
    "MADDPG",
    "MARWIL",
    "MATD3",
    "MODEL_DEFAULTS",
    "PG",
    "PPO",
    "PQN",
    "PQNVDN",
    "QMIX",
    "R2D2",
    "SAC",
    "TD3",
    "TD3BC",
    "TQC",
    "VDN",
    "XQC",
    "ActionDistribution",
    "Algorithm",
    "ApexDQN",
    "CrossQ",
    "DiscreteCQL",
    "EnvContext",
    "EnvCreator",
    "Exploration",
    "IndependentQ",
    "Model",
    "ModelCatalog",
    "MultiAgentBatch",
    "MultiAgentEnv",
    "Policy",
    "PolicySet",
    "RLCallback",
    "Rainbow",
    "RandomPolicy",
    "ReBRAC",
    "RecurrentSAC",
    "ReplayDataModule",
    "RolloutDataModule",
    "RolloutWorker",
    "SampleBatch",
    "ScratchPolicy",
    "ScriptedPolicy",
    "SimpleQ",
    "WorkerSet",
    "build_policy",
    "concat_samples",
    "register_env",
]

_HOMES = {
    "A2C": "policies",
    "A3C": "policies",
    "APPO": "policies",
    "ARS": "policies",
    "ActionDistribution": "models.distributions",
    "Algorithm": "runs.algorithm",
    "ApexDQN": "policies",
    "AWAC": "policies",
    "BC": "policies",
    "CQL": "policies",
    "CrossQ": "policies",
    "DDPG": "policies",
    "DiscreteCQL": "policies",
    "DQN": "policies",
    "ES": "policies",
    "EnvContext": "envs.registry",
    "EnvCreator": "envs.creator",
    "Exploration": "exploration",
    "IMPALA": "policies",
    "IndependentQ": "policies",
    "IQL": "policies",
    "MADDPG": "policies",
    "MARWIL": "policies",
    "MATD3": "policies",
    "MODEL_DEFAULTS": "models.catalog",
    "Model": "models.model",
    "ModelCatalog": "models.catalog",
    "MultiAgentBatch": "sample_batch",
    "MultiAgentEnv": "envs.multi_agent",
    "PolicySet": "policies",
    "PG": "policies",
    "PPO": "policies",
    "PQN": "policies",
    "PQNVDN": "policies",
    "QMIX": "policies",
    "Policy": "policies",
    "R2D2": "policies",
    "ReBRAC": "policies",
    "RLCallback": "callbacks",
    "Rainbow": "policies",
    "RandomPolicy": "policies",
    "RecurrentSAC": "policies",
    "ReplayDataModule": "data.datamodule",
    "RolloutDataModule": "data.datamodule",
    "RolloutWorker": "rollouts.worker_set",
    "SAC": "policies",
    "SampleBatch": "sample_batch",
    "ScratchPolicy": "policies",
    "ScriptedPolicy": "policies",
    "SimpleQ": "policies",
    "TD3": "policies",
    "TD3BC": "policies",
    "TQC": "policies",
    "VDN": "policies",
    "WorkerSet": "rollouts.worker_set",
    "XQC": "policies",
    "build_policy": "rllib.build_policy",
    "concat_samples": "sample_batch",
    "register_env": "envs.registry",
}


def __getattr__(name: str) -> Any:
    """Import the module that holds a public name (PEP 562)."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
