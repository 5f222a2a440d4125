"""The workers that act in environments."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning_rl.rollouts.rollout_worker import RolloutWorker
    from lightning_rl.rollouts.worker_placement import make_worker_set
    from lightning_rl.rollouts.worker_set import WorkerSet

# Ray reads these variables once, when a module of this package imports it. No usage report, no uv hook (it would start
# every worker through uv again), loopback only.
for _name, _value in {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}.items():
    os.environ.setdefault(_name, _value)

__all__ = ["RolloutWorker", "WorkerSet", "make_worker_set"]


def __getattr__(name: str) -> Any:
    """Import the classes lazily, so that processes of an asynchronous vector environment do not import torch."""
    if name in __all__:
        file = "worker_placement" if name == "make_worker_set" else "worker_set"
        return getattr(importlib.import_module(f"{__name__}.{file}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
