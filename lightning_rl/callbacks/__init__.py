"""Lightning callbacks of a run: metrics, checkpoints, stop rules, progress, status; and the base class for your own."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning_rl.callbacks.checkpoint import RLCheckpoint
    from lightning_rl.callbacks.checkpoint_io import AtomicCheckpointIO
    from lightning_rl.callbacks.compile_networks import CompileNetworks
    from lightning_rl.callbacks.config_in_checkpoint import ConfigInCheckpoint
    from lightning_rl.callbacks.experiment_trackers import MLFlowLogger, WandbLogger
    from lightning_rl.callbacks.histograms import LogHistograms
    from lightning_rl.callbacks.hooks import RLCallback
    from lightning_rl.callbacks.lightning_messages import filter_lightning_messages
    from lightning_rl.callbacks.loggers import CSVLogger, TensorBoardLogger
    from lightning_rl.callbacks.metric_names import register_metric
    from lightning_rl.callbacks.metrics import MetricsCallback
    from lightning_rl.callbacks.parallel_evaluation import ParallelEvaluation
    from lightning_rl.callbacks.progress import ProgressBar
    from lightning_rl.callbacks.rank_config_check import RankConfigCheck
    from lightning_rl.callbacks.record_video import RecordVideo
    from lightning_rl.callbacks.run_description import RunDescription
    from lightning_rl.callbacks.self_play import SelfPlay
    from lightning_rl.callbacks.signals import StopSignals
    from lightning_rl.callbacks.status import StatusCallback
    from lightning_rl.callbacks.stop import StopCallback

__all__ = [
    "AtomicCheckpointIO",
    "CSVLogger",
    "CompileNetworks",
    "ConfigInCheckpoint",
    "LogHistograms",
    "MLFlowLogger",
    "MetricsCallback",
    "ParallelEvaluation",
    "ProgressBar",
    "RLCallback",
    "RLCheckpoint",
    "RankConfigCheck",
    "RecordVideo",
    "RunDescription",
    "SelfPlay",
    "StatusCallback",
    "StopCallback",
    "StopSignals",
    "TensorBoardLogger",
    "WandbLogger",
    "filter_lightning_messages",
    "register_metric",
]

_HOMES = {
    "AtomicCheckpointIO": "checkpoint_io",
    "CSVLogger": "loggers",
    "CompileNetworks": "compile_networks",
    "ConfigInCheckpoint": "config_in_checkpoint",
    "MLFlowLogger": "experiment_trackers",
    "MetricsCallback": "metrics",
    "ParallelEvaluation": "parallel_evaluation",
    "ProgressBar": "progress",
    "RLCallback": "hooks",
    "RLCheckpoint": "checkpoint",
    "RankConfigCheck": "rank_config_check",
    "LogHistograms": "histograms",
    "RecordVideo": "record_video",
    "RunDescription": "run_description",
    "SelfPlay": "self_play",
    "StatusCallback": "status",
    "StopCallback": "stop",
    "StopSignals": "signals",
    "TensorBoardLogger": "loggers",
    "WandbLogger": "experiment_trackers",
    "filter_lightning_messages": "lightning_messages",
    "register_metric": "metric_names",
}


def __getattr__(name: str) -> Any:
    """Import the module that holds a public name (PEP 562): checking a config needs the metric names, not Lightning."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
