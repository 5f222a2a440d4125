"""The operators of execution plans: small generators that a plan composes in a few lines.

A plan is an iterator of training batches; what RLlib's execution plans and policy optimizers did with actor iterators
is plain Python here. The plan of a kind of learning lies beside its source: `replay_feed.store_and_replay`,
`sharded_feed.receive_and_replay`, `async_source.batches_as_they_come`, `population_source.populations`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import methodcaller
from typing import Any

from lightning_rl.errors import ConfigError
from lightning_rl.rollouts.worker_results import WorkerResult
from lightning_rl.sample_batch import SampleBatch, concat_samples, env_steps

__all__ = [
    "NOT_READY",
    "async_gradients",
    "concat_batches",
    "concurrently",
    "for_each",
    "parallel_rollouts",
    "record_times",
    "take",
]

NOT_READY: Any = object()  # an operator yields it when it has no item yet (a replay buffer before learning starts)


def parallel_rollouts(
    workers: Any, policy: Any, mode: str = "bulk_sync", fragments_per_batch: int = 1
) -> Iterator[SampleBatch]:
    """Fragments, collected with the newest weights, without end.

    Args:
        workers: a worker set.
        policy: whose weights act; synchronized at the start of each collection.
        mode: "bulk_sync" waits for every worker and puts the fragments side by side in worker order; "async" gives
            each as it is ready.
        fragments_per_batch: with "bulk_sync", how many fragments in a row each environment gives to a batch.

    Raises:
        ConfigError: `mode` is unknown.
    """
    if mode not in ("bulk_sync", "async"):
        raise ConfigError(f"parallel_rollouts mode={mode!r} is unknown; choose bulk_sync or async")
    return _bulk_sync(workers, policy, fragments_per_batch) if mode == "bulk_sync" else _async(workers, policy)


def _bulk_sync(workers: Any, policy: Any, fragments_per_batch: int) -> Iterator[SampleBatch]:
    while True:
        workers.sync_weights(policy)
        if fragments_per_batch == 1:
            yield workers.sample()
        else:
            with workers.rollback_on_error():
                batch = concat_samples([workers.sample() for _ in range(fragments_per_batch)])
            yield batch


def _async(workers: Any, policy: Any) -> Iterator[SampleBatch]:
    workers.sync_weights(policy)
    for fragment in workers.sample_async():
        yield fragment
        workers.sync_weights(policy)


def async_gradients(workers: Any, policy: Any) -> Iterator[WorkerResult]:
    """Gradients of workers as they become ready, without end: what `RolloutWorker.contribute` returned.

    The worker that gave one gets the weights after the step with it, and goes on at once; the others keep theirs.
    """
    while True:
        if idle := workers.idle_workers:
            workers.sync_weights(policy)
        for worker_index in idle:
            workers.submit(worker_index, methodcaller("contribute"))
        if (result := workers.next_result()) is not None:
            yield result


def concat_batches(batches: Iterable[SampleBatch], min_size: int) -> Iterator[SampleBatch]:
    """Join batches until each has at least `min_size` rows of experience."""
    held: list[SampleBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(env_steps, held)) >= min_size:
            yield concat_samples(held)
            held = []


def for_each(items: Iterable[Any], fn: Callable[[Any], Any]) -> Iterator[Any]:
    """`fn` of every item; NOT_READY passes through."""
    for item in items:
        yield item if item is NOT_READY else fn(item)


def record_times(items: Iterator[Any], record_time: Callable[[Any, float], None]) -> Iterator[Any]:
    """The items, each after a call of `record_time(item, seconds)` with the time that it took."""
    while True:
        started = time.perf_counter()
        try:
            item = next(items)
        except StopIteration:
            return
        record_time(item, time.perf_counter() - started)
        yield item


def take(items: Iterable[Any], count: int) -> Iterator[Any]:
    """The first `count` items."""
    return itertools.islice(items, count)


def concurrently(
    ops: Sequence[Iterable[Any]],
    mode: str = "round_robin",
    round_robin_weights: Sequence[int | str] | None = None,
    output_indexes: Sequence[int] | None = None,
) -> Iterator[Any]:
    """Run several ops as one iterator.

    Args:
        ops: iterables; one that ends drops out, the others go on.
        mode: "round_robin" takes from them in turn; "async" too, but passes over ops that are not ready.
        round_robin_weights: items to take from each op per turn; "*" drains it until it is NOT_READY (or has ended).
        output_indexes: emit the items of these ops only (all run); `None` emits all.

    Raises:
        ConfigError: the mode is unknown, or weights do not match the ops.
    """
    if mode not in ("round_robin", "async"):
        raise ConfigError(f"concurrently mode={mode!r} is unknown; choose round_robin or async")
    weights = list(round_robin_weights or [1] * len(ops))
    if len(weights) != len(ops) or any(w != "*" and (not isinstance(w, int) or w < 1) for w in weights):
        raise ConfigError(f"round_robin_weights={weights} for {len(ops)} ops: give one integer ≥ 1 or '*' for each")
    shown = set(range(len(ops))) if output_indexes is None else set(output_indexes)
    return _round_robin(dict(enumerate(map(iter, ops))), weights, shown, wait=mode == "round_robin")


def _round_robin(running: dict[int, Iterator[Any]], weights: list[Any], shown: set[int], wait: bool) -> Iterator[Any]:
    while running:
        for index in list(running):
            for _ in itertools.count() if weights[index] == "*" else range(weights[index]):
                try:
                    item = next(running[index])
                except StopIteration:
                    del running[index]
                    break
                if item is NOT_READY:
                    if weights[index] == "*" or not wait:
                        break
                elif index in shown:
                    yield item
