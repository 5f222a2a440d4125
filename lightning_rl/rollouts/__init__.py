"""Environments and the workers that act in them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning_rl.rollouts.envs import EnvCreator
    from lightning_rl.rollouts.registry import EnvContext, register_env
    from lightning_rl.rollouts.rollout_worker import RolloutWorker
    from lightning_rl.rollouts.worker_set import WorkerSet, make_worker_set

__all__ = ["EnvContext", "EnvCreator", "RolloutWorker", "WorkerSet", "make_worker_set", "register_env"]

_HOMES = {
    "EnvContext": "registry",
    "EnvCreator": "envs",
    "RolloutWorker": "rollout_worker",
    "WorkerSet": "worker_set",
    "make_worker_set": "worker_set",
    "register_env": "registry",
}


def __getattr__(name: str) -> Any:
    """Lazy, so that the processes of an asynchronous vector environment import `envs.py` without torch."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
