"""Where Lightning's epochs end: at multiples of environment steps, whatever an iteration is.

Lightning counts an epoch in batches, known before the epoch begins. Here a batch is an iteration, and how many
environment steps one brings is known when it is over: rows after an episode's end are no steps, and replay acts while
it learns. So the datasets say that they are long, and `Epochs` marks the batch that was an epoch's last.
"""

from __future__ import annotations

import math
from typing import Any

from lightning.pytorch import Callback, Trainer
from torch.utils.data import IterableDataset

__all__ = ["UNEVALUATED_EPOCH", "Epochs", "Iterations"]

ENDLESS = 2**31
"""Iterations that no epoch reaches."""

UNEVALUATED_EPOCH = 100_000
"""Environment steps of an epoch where nothing is evaluated."""


class Iterations(IterableDataset[Any]):
    """A training dataset without an end; one item = one Lightning batch = one iteration.

    It has a length all the same, because Lightning prefetches one batch from a dataset that has none, and on-policy
    data would be one update old. The length is the most that an epoch can have, not what it will have.
    """

    def __len__(self) -> int:
        return ENDLESS


class Epochs(Callback):
    """Ends an epoch, and so lets Lightning evaluate, after the iteration that passes a multiple of `every_env_steps`.

    Multiples, not steps since the last evaluation: neither a resume nor an evaluation at a run's end shifts the later
    ones. `Trainer(limit_train_batches=…)` ends epochs as well, after so many iterations. The DataModule puts this
    before all other callbacks, which may ask `trainer.is_last_batch`.

    Args:
        every_env_steps: at least 1.
    """

    def __init__(self, every_env_steps: int) -> None:
        self.every_env_steps = every_env_steps
        self._passed = 0  # multiples

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Count from where the policy is, and let Lightning validate at the marked batches and at no other."""
        self._passed = pl_module.env_steps // self.every_env_steps
        if trainer.val_check_interval == 1.0:  # else someone wants validations after so many iterations
            trainer.val_check_batch = math.inf

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Mark the batch as the last one if a multiple was passed."""
        passed = pl_module.env_steps // self.every_env_steps
        if passed > self._passed:
            trainer.fit_loop.epoch_loop.batch_progress.is_last_batch = True
        self._passed = passed
