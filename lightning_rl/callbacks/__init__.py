"""Lightning callbacks of a run: metrics, checkpoints, stop rules, progress, status; the base class of users' own."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning_rl.callbacks.checkpoint import RLCheckpoint
    from lightning_rl.callbacks.checkpoint_io import AtomicCheckpointIO
    from lightning_rl.callbacks.compile_networks import CompileNetworks
    from lightning_rl.callbacks.hooks import RLCallback
    from lightning_rl.callbacks.keep_config import KeepConfig
    from lightning_rl.callbacks.loggers import CSVLogger, TensorBoardLogger
    from lightning_rl.callbacks.metrics import MetricsCallback
    from lightning_rl.callbacks.parallel_evaluation import ParallelEvaluation
    from lightning_rl.callbacks.progress import ProgressBar
    from lightning_rl.callbacks.quiet import quiet_lightning
    from lightning_rl.callbacks.same_config import SameConfig
    from lightning_rl.callbacks.signals import StopSignals
    from lightning_rl.callbacks.status import StatusCallback
    from lightning_rl.callbacks.stop import StopCallback

__all__ = [
    "AtomicCheckpointIO",
    "CSVLogger",
    "CompileNetworks",
    "KeepConfig",
    "MetricsCallback",
    "ParallelEvaluation",
    "ProgressBar",
    "RLCallback",
    "RLCheckpoint",
    "SameConfig",
    "StatusCallback",
    "StopCallback",
    "StopSignals",
    "TensorBoardLogger",
    "quiet_lightning",
]

_HOMES = {
    "AtomicCheckpointIO": "checkpoint_io",
    "CSVLogger": "loggers",
    "CompileNetworks": "compile_networks",
    "KeepConfig": "keep_config",
    "MetricsCallback": "metrics",
    "ParallelEvaluation": "parallel_evaluation",
    "ProgressBar": "progress",
    "RLCallback": "hooks",
    "RLCheckpoint": "checkpoint",
    "SameConfig": "same_config",
    "StatusCallback": "status",
    "StopCallback": "stop",
    "StopSignals": "signals",
    "TensorBoardLogger": "loggers",
    "quiet_lightning": "quiet",
}


def __getattr__(name: str) -> Any:
    """Import the module that holds a public name (PEP 562): checking a config needs the metric names, not Lightning."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
