"""Starts the first evaluation beside training, and waits for the last one."""

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
    """Runs the first and the last evaluation of a run; Lightning's validation loop collects those in between.

    Args:
        metrics: callback that writes the result of the last evaluation.
        stop: its `reason` says whether the run was interrupted; then the last evaluation is skipped.
        checkpoint: callback that may save the evaluated policy.
    """

    def __init__(self, metrics: MetricsCallback, stop: StopCallback, checkpoint: RLCheckpoint) -> None:
        self.metrics, self.stop, self.checkpoint = metrics, stop, checkpoint

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start an evaluation of the initial weights, so that there is a value at the first validation."""
        evaluator = trainer.datamodule.evaluator  # pyright: ignore[reportAttributeAccessIssue]
        if evaluator is not None:  # `None` without evaluation
            evaluator.begin(pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Wait for the last evaluation, and write its result."""
        datamodule: Any = trainer.datamodule  # pyright: ignore[reportAttributeAccessIssue]
        if datamodule.evaluator is None or self.stop.reason == "interrupted":
            return
        played = datamodule.evaluator.finish()
        if played:
            means = {EVAL_RETURN: 0, EVAL_LENGTH: 1}
            result = {name: statistics.fmean(each[column] for each in played) for name, column in means.items()}
            self.metrics.record_evaluation(trainer, result, datamodule.evaluated_at)
            self.checkpoint.keep_if_best(trainer, pl_module)
