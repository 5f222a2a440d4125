"""Where an evaluation runs beside training: begins the first one when training begins, and waits for the last one."""

from __future__ import annotations

import statistics
from typing import Any

from lightning.pytorch import Callback, Trainer

from lightning_rl.callbacks.checkpoint import RLCheckpoint
from lightning_rl.callbacks.metric_names import EVAL_LENGTH, EVAL_RETURN
from lightning_rl.callbacks.metrics import MetricsCallback
from lightning_rl.callbacks.stop import StopCallback

__all__ = ["ParallelEvaluation"]


class ParallelEvaluation(Callback):
    """Lightning's validation loop tells the evaluations in between, each one when the next is begun.

    Args:
        metrics: writes what the last evaluation brought.
        stop: knows whether somebody is waiting for the process to end; then nobody waits for that evaluation.
        checkpoint: may keep the policy that played it.
    """

    def __init__(self, metrics: MetricsCallback, stop: StopCallback, checkpoint: RLCheckpoint) -> None:
        self.metrics, self.stop, self.checkpoint = metrics, stop, checkpoint

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Begin with the weights that training begins with, so that there is a value at the first validation."""
        evaluator = trainer.datamodule.evaluator  # pyright: ignore[reportAttributeAccessIssue]
        if evaluator is not None:  # none where nothing is evaluated
            evaluator.begin(pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Tell the evaluation that was begun last."""
        datamodule: Any = trainer.datamodule  # pyright: ignore[reportAttributeAccessIssue]
        if datamodule.evaluator is None or self.stop.reason == "interrupted":
            return
        played = datamodule.evaluator.finish()
        if played:
            means = {EVAL_RETURN: 0, EVAL_LENGTH: 1}
            result = {name: statistics.fmean(each[column] for each in played) for name, column in means.items()}
            self.metrics.evaluated(trainer, result, datamodule.evaluated_at)
            self.checkpoint.keep_if_best(trainer, pl_module)
