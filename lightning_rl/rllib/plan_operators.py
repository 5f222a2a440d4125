"""Operators of RLlib's execution plans that learn by gradients, mix old batches in, or hand batches to a learner."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lightning_rl.data.plans import async_gradients
from lightning_rl.errors import ConfigError
from lightning_rl.learning.gradients import GradientUpdate, GradientUpdates
from lightning_rl.rllib.plan_verbs import NOT_READY
from lightning_rl.rllib.plans import LocalIterator, TrainOneStep
from lightning_rl.rllib.sampled_batch import as_collected
from lightning_rl.sample_batch import AnyBatch, env_steps

__all__ = [
    "ApplyGradients",
    "AsyncGradients",
    "AverageGradients",
    "BroadcastUpdateLearnerWeights",
    "ComputeGradients",
    "Dequeue",
    "Enqueue",
    "LearnerThread",
    "MixInReplay",
    "OncePerTimeInterval",
    "OncePerTimestepsElapsed",
    "UpdateKL",
    "record_steps_trained",
]

Gradients = tuple[GradientUpdate, int]  # and the env steps that they come from


def AsyncGradients(workers: Any) -> LocalIterator:  # noqa: N802
    """(gradients, env steps) of the workers' fragments, each as soon as it is there. Mnih et al. 2016."""
    results = async_gradients(workers.workers, workers.policy)
    return LocalIterator((result.value, result.value.env_steps) for result in results)


class ComputeGradients:
    """Computes the gradients of every batch; no step is taken.

    Args:
        workers: the workers of the plan, whose policy it is.
    """

    def __init__(self, workers: Any) -> None:
        self.policy = workers.policy

    def __call__(self, batch: AnyBatch) -> Gradients:
        """The gradients, and the env steps of the batch."""
        learned = as_collected(batch).to(self.policy.device)
        return self.policy.learner.gradient_update(learned), env_steps(learned)


class AverageGradients:
    """Averages gradients, so that the microbatches of a batch make its step.

    RLlib's operator of this name adds them up, for losses that are sums over rows; here they are means.
    """

    def __call__(self, items: Sequence[Gradients]) -> Gradients:
        """The means of the gradients and metrics, and the sum of the env steps."""
        updates = [update for update, _ in items]
        gradients = [
            None if parts[0] is None else np.mean([np.asarray(part) for part in parts], axis=0)
            for parts in zip(*(update.gradients for update in updates), strict=True)
        ]
        names = updates[0].metrics
        metrics = {name: float(np.mean([update.metrics[name] for update in updates])) for name in names}
        moments: dict[str, list[Any]] = {}
        for update in updates:
            for name, news in update.moments.items():
                moments.setdefault(name, []).extend(news)
        count = sum(steps for _, steps in items)
        joined = replace(updates[-1], gradients=gradients, metrics=metrics, env_steps=count, moments=moments)
        return joined, count


class ApplyGradients:
    """Takes a gradient step with each item of `ComputeGradients`, `AverageGradients` or `AsyncGradients`.

    Args:
        workers: the workers of the plan, whose policy learns.
        policies: `None`: RLlib's argument for several policies, which learn from gradients together here.
        update_all: not read: workers take the newest weights before they sample.
    """

    def __init__(self, workers: Any, policies: Sequence[str] | None = None, update_all: bool = True) -> None:
        if policies is not None:
            raise ConfigError(f"ApplyGradients(policies={policies!r}): all policies learn together; leave it out")
        self.policy = workers.policy

    def __call__(self, item: Gradients) -> dict[str, float]:
        """The metrics of the step."""
        self.policy.training_step(GradientUpdates([(0, item[0], True)]))
        return self.policy.iteration_metrics


class MixInReplay:
    """Repeats old batches beside new ones. Espeholt et al. 2018, arXiv:1802.01561, section 5.2.2.

    Args:
        num_slots: how many of the latest batches are kept; 0: none.
        replay_proportion: old batches for each new one, ≥ 0.
        seed: the seed of the draws.
    """

    def __init__(self, num_slots: int, replay_proportion: float | None = None, seed: int = 0) -> None:
        if replay_proportion and num_slots == 0:
            raise ConfigError(f"MixInReplay(num_slots=0, replay_proportion={replay_proportion}): give num_slots")
        self.proportion, self.kept = replay_proportion or 0.0, deque[AnyBatch](maxlen=num_slots)
        self.rng, self.due = np.random.default_rng(seed), 0.0

    def __call__(self, batch: AnyBatch) -> list[AnyBatch]:
        """The batch, and the old ones that are due."""
        out = [batch]
        self.due += self.proportion if self.kept else 0.0
        while self.due >= 1.0:
            self.due -= 1.0
            out.append(self.kept[int(self.rng.integers(len(self.kept)))])
        self.kept.append(batch)
        return out


class LearnerThread:
    """The learner of IMPALA's plan, by RLlib's name: a queue of batches and one of results.

    Lightning's Trainer learns in the thread that goes through the plan, so a batch is learned from when its result is
    taken out of `outqueue`.

    Args:
        workers: the workers of the plan, whose policy learns.
        minibatch_buffer_size: not read.
        num_sgd_iter: sweeps over a batch.
        learner_queue_size: most batches that wait; 0: any number.
        learner_queue_timeout: not read.
    """

    def __init__(
        self,
        workers: Any,
        minibatch_buffer_size: int = 1,
        num_sgd_iter: int = 1,
        learner_queue_size: int = 16,
        learner_queue_timeout: float = 300,
    ) -> None:
        self.inqueue: deque[AnyBatch] = deque(maxlen=learner_queue_size or None)
        self.outqueue: Iterator[Any] = self._results()
        self.train = TrainOneStep(workers, num_sgd_iter=num_sgd_iter)

    def start(self) -> None:
        """Nothing is started."""

    def is_alive(self) -> bool:
        """Always."""
        return True

    def add_learner_metrics(self, result: Any) -> Any:
        """The result; the Trainer adds the metrics."""
        return result

    def _results(self) -> Iterator[Any]:
        while True:
            yield self.train(self.inqueue.popleft()) if self.inqueue else NOT_READY


class Enqueue:
    """Puts items into a queue.

    Args:
        queue: `inqueue` of a `LearnerThread`.
    """

    def __init__(self, queue: Any) -> None:
        self.queue = queue

    def __call__(self, item: Any) -> Any:
        """The item."""
        self.queue.append(item)
        return item


def Dequeue(queue: Iterable[Any], check: Callable[[], bool] = lambda: True) -> LocalIterator:  # noqa: N802
    """The items of a queue; NOT_READY while there is none.

    Args:
        queue: `outqueue` of a `LearnerThread`.
        check: ends the iteration when it is false.
    """

    def items() -> Iterator[Any]:
        for item in queue:
            if not check():
                return
            yield item

    return LocalIterator(items())


class BroadcastUpdateLearnerWeights:
    """Lets the workers act with the newest weights after every `broadcast_interval` batches.

    Args:
        learner_thread: not read.
        workers: the workers of the plan.
        broadcast_interval: batches between two updates.
    """

    def __init__(self, learner_thread: Any, workers: Any, broadcast_interval: int = 1) -> None:
        self.workers, self.interval, self.count = workers, broadcast_interval, 0

    def __call__(self, item: Any) -> Any:
        """The item."""
        self.count += 1
        if self.count % self.interval == 0:
            self.workers.sync_weights(self.workers.policy)
        return item


class UpdateKL:
    """Passes items on: a policy with a KL penalty adapts its coefficient after each iteration by itself."""

    def __init__(self, workers: Any) -> None:
        self.workers = workers

    def __call__(self, item: Any) -> Any:
        """The item."""
        return item


def record_steps_trained(item: Any) -> Any:
    """The item; steps are counted where they are learned from."""
    return item


class OncePerTimeInterval:
    """For `filter`: true of an item if that many seconds have passed since the last one.

    Args:
        delay: seconds; 0 or `None`: of every item.
    """

    def __init__(self, delay: float | None = None) -> None:
        self.delay, self.last = delay or 0.0, time.perf_counter()

    def __call__(self, item: Any) -> bool:
        """Whether the time has passed."""
        passed = time.perf_counter() - self.last >= self.delay
        self.last = time.perf_counter() if passed else self.last
        return passed


class OncePerTimestepsElapsed:
    """For `filter`: true of an item if that many environment steps were taken since the last one.

    Args:
        delay_steps: environment steps.
        workers: the workers of the plan.
    """

    def __init__(self, delay_steps: int, workers: Any) -> None:
        self.delay, self.policy = delay_steps, workers.policy
        self.last = self.policy.env_steps

    def __call__(self, item: Any) -> bool:
        """Whether the steps were taken."""
        passed = self.policy.env_steps - self.last >= self.delay
        self.last = self.policy.env_steps if passed else self.last
        return passed
