"""Execution plans: generators of training batches, which say in which order workers act and the policy learns.

A plan is plain Python: `map`, `itertools.islice` and `for` loops compose it. The default plan of each source is defined
beside it: `replay_feed.store_and_replay`, `sharded_feed.receive_and_replay`, `async_source.batches_as_they_come`,
`population_source.populations`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import Any

from lightning_rl.rollouts.worker_results import WorkerResult
from lightning_rl.sample_batch import SampleBatch, concat_samples

__all__ = ["async_gradients", "parallel_rollouts", "record_times"]


def parallel_rollouts(workers: Any, policy: Any, fragments_per_batch: int = 1) -> Iterator[SampleBatch]:
    """Fragments of all workers, collected with the newest weights, without end.

    Args:
        workers: a worker set, whose fragments are put side by side in worker order.
        policy: whose weights act; synchronized at the start of each collection.
        fragments_per_batch: how many fragments in a row each environment gives to a batch.
    """
    while True:
        workers.sync_weights(policy)
        if fragments_per_batch == 1:
            yield workers.sample()
        else:
            with workers.rollback_on_error():
                batch = concat_samples([workers.sample() for _ in range(fragments_per_batch)])
            yield batch


def async_gradients(workers: Any, policy: Any) -> Iterator[WorkerResult]:
    """Gradients of workers as they become ready, without end: what `RolloutWorker.contribute` returned.

    The worker that gave one gets the weights after the step with it, and continues at once; the others keep theirs.
    """
    while True:
        if idle := workers.idle_workers:
            workers.sync_weights(policy)
        for worker_index in idle:
            workers.submit(worker_index, methodcaller("contribute"))
        if (result := workers.next_result()) is not None:
            yield result


def record_times(items: Iterator[Any], record_time: Callable[[Any, float], None]) -> Iterator[Any]:
    """The items, each after a call of `record_time(item, seconds)` with the time that it took."""
    started = time.perf_counter()
    for item in items:
        record_time(item, time.perf_counter() - started)
        yield item
        started = time.perf_counter()
