"""Ends Lightning's epochs at multiples of environment steps, whatever an iteration is.

Lightning counts an epoch in batches, and needs their number before the epoch begins. Here a batch is an iteration, and
the number of its environment steps is known only afterwards: rows after an episode's end are not steps, and replay acts
while it learns. So the training dataset has the length `ENDLESS`, and `Epochs` marks the last batch of an epoch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn

from lightning_rl.data.datasets import ENDLESS

__all__ = ["UNEVALUATED_EPOCH", "Epochs"]

UNEVALUATED_EPOCH = 100_000
"""Environment steps of an epoch where nothing is evaluated."""


class Epochs(Callback):
    """Ends an epoch, and so lets Lightning evaluate, after the iteration that passes a multiple of `every_env_steps`.

    Multiples, not steps since the last evaluation: neither a resume nor an evaluation at a run's end shifts the later
    ones. `Trainer(limit_train_batches=…)` ends epochs as well, after that many iterations. The DataModule puts this
    before all other callbacks, which may ask `trainer.is_last_batch`.

    An evaluation that would raise the share of evaluations in the wall time above `max_share` is postponed: its epoch
    continues to the next multiple. The one at the end of a fit takes place in any case, as Lightning evaluates when it
    stops early.

    Args:
        every_env_steps: at least 1.
        max_share: share of the wall time so far, this evaluation included, in (0, 1]. `None`: no bound.
        expected_seconds: gives the expected duration of the first evaluation, which waits while it is `None`. Later
            ones are expected to take as long as the one before.

    Attributes:
        done, postponed: numbers of evaluations so far, also before a resume.
        seconds: that the done ones took.
    """

    def __init__(
        self,
        every_env_steps: int,
        max_share: float | None = None,
        expected_seconds: Callable[[], float | None] = lambda: 0.0,
    ) -> None:
        self.every_env_steps, self.max_share, self.expected_seconds = every_env_steps, max_share, expected_seconds
        self.done = self.postponed = 0
        self.seconds = 0.0
        self._passed = 0  # multiples
        self._postponed_at = self._evaluated_at = -1  # env steps
        self._last: float | None = None  # seconds of the last evaluation
        self._seconds_before = 0.0
        self._started = self._evaluation_started = time.perf_counter()

    @property
    def total_seconds(self) -> float:
        """Wall time of training, also before a resume."""
        return self._seconds_before + time.perf_counter() - self._started

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Count from where the policy is, and let Lightning validate at the marked batches and at no other."""
        self._passed = pl_module.env_steps // self.every_env_steps
        self._started = time.perf_counter()
        every = trainer.val_check_interval
        if (
            isinstance(every, float) and every == 1.0
        ):  # else validations after that many iterations (1 as well) are configured
            trainer.val_check_batch = math.inf
        if trainer.fit_loop.max_batches == ENDLESS:  # else Lightning's own progress bars count down from there
            trainer.fit_loop.max_batches = math.inf

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Mark the batch as the last one if a multiple was passed, and there is time for an evaluation."""
        passed = pl_module.env_steps // self.every_env_steps
        if passed > self._passed:
            if not trainer.limit_val_batches or trainer.strategy.reduce_boolean_decision(self._affordable()):
                trainer.fit_loop.epoch_loop.batch_progress.is_last_batch = True
            else:
                self.postponed, self._postponed_at = self.postponed + 1, pl_module.env_steps
        self._passed = passed

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start the evaluation's clock."""
        self._evaluation_started = time.perf_counter()

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Count the evaluation."""
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            self._last = time.perf_counter() - self._evaluation_started
            self.done, self.seconds = self.done + 1, self.seconds + self._last
            self._evaluated_at = pl_module.env_steps
            self.postponed -= self._postponed_at == pl_module.env_steps  # it was postponed, but the run ended there

    def on_save_checkpoint(self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Count in the file of a run's end the evaluation that follows it."""
        follows = trainer.should_stop and trainer.limit_val_batches and self._evaluated_at != pl_module.env_steps
        if follows and trainer.state.fn == TrainerFn.FITTING:
            state = checkpoint["callbacks"][self.state_key]
            state["done"] += 1
            state["postponed"] -= self._postponed_at == pl_module.env_steps

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Keep the time, for a later fit of the same objects."""
        self._seconds_before, self._started = self.total_seconds, time.perf_counter()

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        times = {"seconds": self.seconds, "total_seconds": self.total_seconds, "last": self._last}
        return {"done": self.done, "postponed": self.postponed, **times}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue counting."""
        self.done, self.postponed = int(state_dict["done"]), int(state_dict["postponed"])
        self.seconds, self._seconds_before = float(state_dict["seconds"]), float(state_dict["total_seconds"])
        self._last = state_dict["last"]

    def _affordable(self) -> bool:
        if self.max_share is None:
            return True
        expected = self.expected_seconds() if self._last is None else self._last
        if expected is None:
            return False
        return self.seconds + expected <= self.max_share * (self.total_seconds + expected)
