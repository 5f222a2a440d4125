"""The generators under RLlib's operators; the golden sequences are RLlib's."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import torch

from lightning_rl.rllib.local_replay_buffer import LocalReplayBuffer
from lightning_rl.rllib.plan_verbs import NOT_READY, concat_batches, concurrently, for_each
from lightning_rl.rllib.plans import LocalIterator, Replay, StoreToReplayBuffer
from lightning_rl.sample_batch import SampleBatch
from tests.refusals import not_refused


@pytest.mark.parametrize(
    ("ops", "weights", "items"),
    [
        ([[1, 2, 3], [4, 5, 6]], None, [1, 4, 2, 5, 3, 6]),
        ([[1, 1, 1], [2, 2, 2], [3, 3, 3]], [3, 1, 2], [1, 1, 1, 2, 3, 3, 2, 3, 2]),
        ([[1, 1, 1], [2, 2, 2], [3, 3, 3]], [1, 1, "*"], [1, 2, 3, 3, 3, 1, 2, 1, 2]),
        ([[1, 2], [7, NOT_READY, 8]], [1, "*"], [1, 7, 2, 8]),
        ([[NOT_READY, NOT_READY, 1], [2]], None, [2, 1]),
    ],
    ids=["round robin", "several per turn", "a star drains", "but stops at NOT_READY", "which is no item"],
)
def test_concurrently_takes_items_in_turns(ops: Any, weights: Any, items: list[int]) -> None:
    assert list(LocalIterator(concurrently(ops, round_robin_weights=weights))) == items


def test_copies_of_an_iterator_take_turns_also_where_one_is_within_concurrently() -> None:
    """One copy joins pairs; the other, behind an op that is ready from its third item on, gets each item in time.

    Without NOT_READY of a copy that is ahead, the pairs would take two items for each of the other copy.
    """
    pairs, singles = LocalIterator(itertools.count(1)).duplicate(2)
    seen: list[int] = []
    store_op = singles.for_each(lambda item: seen.append(item))
    train_op = LocalIterator(iter(lambda: f"after {len(seen)}" if len(seen) > 2 else NOT_READY, None))
    within = concurrently([store_op, train_op], output_indexes=[1])
    both = LocalIterator(concurrently([pairs.batch(2), within], mode="async"))
    assert list(itertools.islice(both, 5)) == [[1, 2], "after 3", [3, 4], "after 4", "after 5"]


def test_output_indexes_choose_the_ops_whose_items_are_emitted() -> None:
    seen: list[int] = []
    silent = for_each([1, 2, 3], lambda item: seen.append(item))
    assert list(concurrently([silent, [4, 5, 6]], output_indexes=[1])) == [4, 5, 6]
    assert seen == [1, 2, 3]


def test_bad_arguments_are_refused_with_their_values() -> None:
    cases: list[Any] = [({"round_robin_weights": given}, re.escape(str(given))) for given in ([1], [0, 1], [1, "x"])]
    cases.append(({"mode": "parallel"}, "parallel"))
    assert not_refused(lambda arguments: concurrently([[1], [2]], **arguments), cases) == []


def test_concat_batches_waits_for_enough_rows() -> None:
    batches = (SampleBatch(actions=torch.full((40,), index)) for index in itertools.count())
    sizes = [batch.count for batch in itertools.islice(concat_batches(batches, min_size=100), 2)]
    assert sizes == [120, 120]


def test_stored_rows_are_replayed_once_learning_starts() -> None:
    """Batches of 4 rows, learning_starts=8: the first replay gives no batch, the second one of rows of both."""
    buffer = LocalReplayBuffer(learning_starts=8, buffer_size=100, replay_batch_size=6, prioritized_replay_alpha=0.0)
    batches = [rows_from(start) for start in (0, 4, 8)]
    both = LocalIterator(
        concurrently(
            [for_each(batches, StoreToReplayBuffer(local_buffer=buffer)), Replay(local_buffer=buffer)],
            round_robin_weights=[1, 1],
        )
    )
    assert next(both) is batches[0]
    assert next(both) is batches[1]  # nothing to replay in between
    drawn = next(both)
    assert drawn.count == 6 and set(drawn.actions.tolist()) <= set(range(8))


def rows_from(start: int) -> SampleBatch:
    """Four steps of an episode that goes on."""
    steps = torch.arange(start, start + 4)
    return SampleBatch(
        obs=steps.float().unsqueeze(1),
        next_obs=steps.float().unsqueeze(1) + 1.0,
        actions=steps,
        rewards=torch.ones(4),
        terminated=torch.zeros(4, dtype=torch.bool),
    )
