"""The generators under RLlib's operators: joined batches, several operators in turn, samples as they become ready."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from lightning_rl.data.plans import parallel_rollouts
from lightning_rl.errors import ConfigError
from lightning_rl.sample_batch import SampleBatch, concat_samples, env_steps

__all__ = ["NOT_READY", "concat_batches", "concurrently", "for_each", "rollouts", "rollouts_of_agent_steps"]

NOT_READY: Any = object()  # an operator yields it when it has no item yet (a replay buffer before learning starts)


def rollouts(workers: Any, policy: Any, mode: str = "bulk_sync") -> Iterator[SampleBatch]:
    """Fragments, collected with the newest weights, without end.

    Args:
        workers: a worker set.
        policy: whose weights act.
        mode: "bulk_sync" waits for every worker (`parallel_rollouts`); "async" gives each fragment as it is ready.

    Raises:
        ConfigError: `mode` is unknown.
    """
    if mode not in ("bulk_sync", "async"):
        raise ConfigError(f"parallel_rollouts mode={mode!r} is unknown; choose bulk_sync or async")
    return parallel_rollouts(workers, policy) if mode == "bulk_sync" else _as_ready(workers, policy)


def _as_ready(workers: Any, policy: Any) -> Iterator[SampleBatch]:
    workers.sync_weights(policy)
    for fragment in workers.sample_async():
        yield fragment
        workers.sync_weights(policy)


def rollouts_of_agent_steps(workers: Any, policy: Any, least: int) -> Iterator[Any]:
    """Fragments of several agents joined to batches with at least `least` actions of agents, without end.

    Args:
        workers: a worker set.
        policy: whose newest weights act.
        least: number of rows, over all policies.
    """
    while True:
        workers.sync_weights(policy)
        with workers.rollback_on_error():
            held = [workers.sample()]
            while sum(fragment.agent_steps for fragment in held) < least:
                held.append(workers.sample())
            batch = concat_samples(held)
        yield batch


def concat_batches(batches: Iterable[SampleBatch], min_size: int) -> Iterator[SampleBatch]:
    """Join batches until each has at least `min_size` rows of experience."""
    held: list[SampleBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(env_steps, held)) >= min_size:
            yield concat_samples(held)
            held = []


def with_not_ready(items: Iterable[Any]) -> Iterable[Any]:
    """The items of a `LocalIterator` with NOT_READY, which its own iteration leaves out."""
    return getattr(items, "items", items)


def for_each(items: Iterable[Any], fn: Callable[[Any], Any]) -> Iterator[Any]:
    """`fn` of every item; NOT_READY passes through."""
    for item in with_not_ready(items):
        yield item if item is NOT_READY else fn(item)


def concurrently(
    ops: Sequence[Iterable[Any]],
    mode: str = "round_robin",
    round_robin_weights: Sequence[int | str] | None = None,
    output_indexes: Sequence[int] | None = None,
) -> Iterator[Any]:
    """Run several ops as one iterator, which gives NOT_READY after a turn in which one of them was not ready.

    Args:
        ops: iterables; one that ends drops out, the others continue.
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
    running = {index: iter(with_not_ready(op)) for index, op in enumerate(ops)}
    return _round_robin(running, weights, shown, wait=mode == "round_robin")


def _round_robin(running: dict[int, Iterator[Any]], weights: list[Any], shown: set[int], wait: bool) -> Iterator[Any]:
    while running:
        is_ready = True
        for index in list(running):
            for _ in itertools.count() if weights[index] == "*" else range(weights[index]):
                try:
                    item = next(running[index])
                except StopIteration:
                    del running[index]
                    break
                if item is NOT_READY:
                    is_ready = False
                    if weights[index] == "*" or not wait:
                        break
                elif index in shown:
                    yield item
        if not is_ready:  # let the ops of an outer iterator continue, which these may wait for
            yield NOT_READY
