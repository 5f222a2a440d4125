"""Ends training after enough environment steps, at a return, after some time, or on a signal."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn

from lightning_rl.callbacks.metric_names import TRAIN_RETURN, check_metric
from lightning_rl.callbacks.metrics import latest_metrics
from lightning_rl.callbacks.signals import StopSignals
from lightning_rl.run_directory.process_identity import Heartbeat
from lightning_rl.schema.ranges import Count, Positive
from lightning_rl.schema.signatures import check_keywords

__all__ = ["StopCallback", "Watch"]

Watch = Callable[[int, Mapping[str, float], bool], bool]
"""Called with env steps, the newest metrics, and whether an evaluation has just ended; `True` interrupts the run."""


# An iteration is long beyond both: seconds, and times the longest one before.
LONG = (120.0, 20.0)
LONG_AT_THE_END = (5.0, 2.0)  # once the run was to end
LOOK_EVERY_S = 2.0

log = logging.getLogger(__name__)


class StopCallback(Callback):
    """Sets `trainer.should_stop` after the iteration in which a rule is met, the same one on every rank.

    An iteration that continues long after the run was to end, or far longer than those before, is warned of once, with
    the place where it is: an environment that hangs in this process cannot be ended from within.

    Args:
        total_env_steps: stop at this many environment steps, including those before a resume; `None` turns this off.
        target_return: stop once `metric` is at least this; `None` turns this off.
        metric: metric to compare with `target_return`. A `rollout/…` metric counts only over `min_episodes` episodes.
        seconds: stop after this wall time since this fit began; `None` turns this off.
        min_episodes: least number of episodes in the window for its mean to count.
        signals: records Ctrl-C and SIGTERM; `None` leaves them to Lightning.
        watch: called after each iteration and evaluation, on the first rank; it may end the run as a signal does.

    Attributes:
        reason: why training stopped: "total_env_steps", "return", "seconds" or "interrupted"; `None` for anything else.

    Raises:
        ConfigError: a number is not positive, or the metric is unknown.
    """

    @check_keywords("stop")
    def __init__(
        self,
        total_env_steps: Count | None = None,
        target_return: float | None = None,
        metric: str = TRAIN_RETURN,
        seconds: Positive | None = None,
        min_episodes: Count = 100,
        signals: StopSignals | None = None,
        watch: Watch | None = None,
    ) -> None:
        check_metric("stop.metric", metric)
        self.total_env_steps, self.target_return, self.metric = total_env_steps, target_return, metric
        self.seconds, self.min_episodes, self.signals = seconds, min_episodes, signals
        self.watch = watch
        self.reason: str | None = None
        self._deadline = float("inf")
        self._validation_limit: int | float | None = None
        self._began = self._longest = 0.0
        self._told = False
        self._heartbeat: Heartbeat | None = None

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start the clock; a resumed run that has all its steps stops before its first iteration."""
        self.reason = None
        self._deadline = float("inf") if self.seconds is None else time.perf_counter() + self.seconds
        if self.signals is not None:
            self.signals.install()
            self.signals.deferring = True
            self._limit_waiting(trainer, self.signals)
        if self.total_env_steps is not None and pl_module.env_steps >= self.total_env_steps:
            self.reason, trainer.should_stop = "total_env_steps", True
        self._began, self._longest, self._told = time.perf_counter(), 0.0, False
        learner = threading.get_ident()
        self._heartbeat = Heartbeat(lambda: self._notice_hang(trainer, learner), LOOK_EVERY_S)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Apply the rules between two iterations."""
        self._longest = max(self._longest, time.perf_counter() - self._began)
        self._began = time.perf_counter()
        self._decide(trainer, pl_module, evaluated=False)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Apply the rules again, as an evaluation may reach the return or last until a signal comes."""
        if not trainer.sanity_checking and trainer.state.fn == TrainerFn.FITTING:
            self._decide(trainer, pl_module, evaluated=True)
            self._began = time.perf_counter()

    def on_fit_end(self, trainer: Trainer, pl_module: Any) -> None:
        """After the last checkpoint: from now on, a signal stops the run at once."""
        self._stop_deferring(trainer)

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """From now on, a signal stops the run at once."""
        if isinstance(exception, KeyboardInterrupt):
            self.reason = "interrupted"
        self._stop_deferring(trainer)

    def _notice_hang(self, trainer: Trainer, learner: int) -> None:
        """Called every few seconds in a thread."""
        taken = time.perf_counter() - self._began
        signalled = self.signals is not None and self.signals.received is not None
        ending = signalled or time.perf_counter() > self._deadline
        seconds, times = LONG_AT_THE_END if ending else LONG
        if not self._told and not trainer.validating and taken > max(seconds, times * self._longest):
            self._told = True
            rank = f"rank {trainer.global_rank}: " if trainer.world_size > 1 else ""
            before = f", those before at most {self._longest:.1f} s" if self._longest else ""
            log.warning(
                f"{rank}this iteration has taken {taken:.0f} s{before}"
                f"{', and the run was to end' if ending else ''}: it is in {place_of(learner)}; Ctrl-C "
                f"{'again' if signalled else 'twice'} stops at once; workers.num_workers=1 and "
                "workers.step_timeout_s replace environments that hang"
            )

    def _limit_waiting(self, trainer: Trainer, signals: StopSignals) -> None:
        """Make a signal end waits for hanging workers; not with several ranks, where the others would wait instead."""
        stop_when = getattr(getattr(trainer, "datamodule", None), "stop_when", None)
        if stop_when is not None and trainer.world_size == 1:
            stop_when(lambda: signals.received is not None)

    def _decide(self, trainer: Trainer, policy: Any, evaluated: bool) -> None:
        reason = self._stop_reason(trainer, policy, evaluated)
        strategy = trainer.strategy
        decided = strategy.reduce_boolean_decision(reason is not None, all=False)  # collective: on every rank
        if trainer.should_stop or not decided:
            return
        if strategy.reduce_boolean_decision(reason == "interrupted", all=False):
            reason = "interrupted"
            if not evaluated:  # Lightning would evaluate before an early stop, while the user waits
                self._validation_limit, trainer.limit_val_batches = trainer.limit_val_batches, 0
        self.reason = reason or "another rank"
        trainer.should_stop = True

    def _stop_reason(self, trainer: Trainer, policy: Any, evaluated: bool) -> str | None:
        if self.signals is not None and self.signals.received is not None:
            return "interrupted"
        if self.watch is not None and self.watch(int(policy.env_steps), latest_metrics(trainer), evaluated):
            return "interrupted"
        if self.total_env_steps is not None and policy.env_steps >= self.total_env_steps:
            return "total_env_steps"
        if time.perf_counter() >= self._deadline:
            return "seconds"
        if self.target_return is not None and self._reaches_target(trainer, evaluated):
            return "return"
        return None

    def _reaches_target(self, trainer: Trainer, evaluated: bool) -> bool:
        if self.metric.startswith("eval/") and not evaluated:
            return False  # the latest evaluation was tested when it ended
        value = latest_metrics(trainer).get(self.metric)
        window = getattr(getattr(trainer, "datamodule", None), "episode_window", None)
        if self.metric.startswith("rollout/") and window is not None and len(window.returns) < self.min_episodes:
            return False
        return value is not None and self.target_return is not None and value >= self.target_return

    def _stop_deferring(self, trainer: Trainer) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None
        if self.signals is not None:
            self.signals.deferring = False
        if self._validation_limit is not None:
            trainer.limit_val_batches, self._validation_limit = self._validation_limit, None


def place_of(thread: int) -> str:
    """Where a thread is: the environment whose step or reset it is in, if it is in one, and the innermost line."""
    frame = innermost = sys._current_frames()[thread]
    line = f"{innermost.f_code.co_filename}:{innermost.f_lineno}"
    while frame is not None:
        name, owner = frame.f_code.co_name, frame.f_locals.get("self")
        if name in ("step", "reset") and isinstance(owner, gym.Env):
            return f"{type(owner).__name__}.{name} of an environment ({line})"
        frame = frame.f_back
    return f"{innermost.f_code.co_name} ({line})"
