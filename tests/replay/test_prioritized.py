"""Prioritized replay: frequencies of draws, importance weights, and updates of priorities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from lightning_rl.errors import NonFiniteError
from lightning_rl.replay.priorities import Ranked
from lightning_rl.replay.prioritized import PrioritizedReplayBuffer
from tests.refusals import not_refused
from tests.replay.streams import Stream, counted


def prioritized_buffer(count: int, capacity: int = 100, **keywords: Any) -> PrioritizedReplayBuffer:
    buffer = PrioritizedReplayBuffer(capacity, **keywords)
    buffer.add(counted(count))
    return buffer


def ids_of(buffer: PrioritizedReplayBuffer) -> torch.Tensor:
    """The index of each row, in their order."""
    slots = np.flatnonzero(buffer.tree.leaves)
    order = buffer._transitions(slots).rewards.argsort()
    return torch.from_numpy(buffer._ring().ids(slots))[order]


def with_errors(errors: Sequence[float], **keywords: Any) -> PrioritizedReplayBuffer:
    """One row for each error."""
    buffer = prioritized_buffer(len(errors), capacity=len(errors), **keywords)
    buffer.update_priorities(ids_of(buffer), torch.tensor(errors))
    return buffer


def frequencies(buffer: PrioritizedReplayBuffer, draws: int = 20_000, batch_size: int | None = None) -> np.ndarray:
    """How often each row is drawn, by its reward; a share of all."""
    rng, counts, size = np.random.default_rng(0), np.zeros(0), batch_size or len(buffer)
    for _ in range(draws // size):
        found = buffer.sample(size, rng).rewards.long().numpy()
        counts = np.bincount(found, minlength=len(counts)) + np.pad(counts, (0, max(0, found.max() + 1 - len(counts))))
    return counts / counts.sum()


# -- proportional -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ranked", [False, True])
def test_counts_of_draws_pass_a_chi_squared_test(ranked: bool) -> None:
    """One row a draw, so that draws are independent: 49 degrees of freedom, above 107.2 with probability 10⁻⁶.

    Whatever the sign of an error; the probability follows |δ|^0.6 or the rank of |δ|.
    """
    errors = np.random.default_rng(1).permutation(np.arange(1, 51))
    buffer = with_errors((errors * (-1) ** errors).tolist(), ranked=ranked, eps=1e-12)
    priorities = (1 / (51.0 - errors) if ranked else errors) ** 0.6
    expected = 5_000 * priorities / priorities.sum()
    counts = frequencies(buffer, 5_000, batch_size=1) * 5_000
    assert ((counts - expected) ** 2 / expected).sum() < 107.2


def test_importance_weights_correct_the_bias_and_are_at_most_one() -> None:
    """β = 0.4: (pᵢ / p₁)^(−α β) for errors 1, 2, 3, 4."""
    buffer = with_errors([1, 2, 3, 4], alpha=0.6, beta=0.4, eps=1e-12)
    while True:
        batch = buffer.sample(4)
        if len(batch.batch_indexes.unique()) == 4:
            break
    order = batch.rewards.argsort()
    assert_close(batch["weights"][order], torch.tensor([1.0, 0.846745, 0.768229, 0.716978]))


@pytest.mark.parametrize("ranked", [False, True])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_largest_weight_of_every_batch_is_one(ranked: bool, scale: float) -> None:
    buffer = with_errors((scale * np.random.default_rng(0).random(50)).tolist(), ranked=ranked, eps=1e-40)
    for _ in range(50):
        weights = buffer.sample(8).weights
        assert weights.max() == 1.0 and weights.min() > 0.0 and weights.dtype == torch.float32


def test_without_alpha_draws_are_uniform_and_unweighted() -> None:
    buffer = with_errors([1, 2, 3, 40], alpha=0.0)
    assert frequencies(buffer) == pytest.approx([0.25] * 4, abs=0.01)
    assert (buffer.sample(4).weights == 1).all()


def test_beta_follows_its_schedule_over_rows_added_or_env_steps() -> None:
    """β goes from 0 to 1 over 400 steps; at 100 rows it is 0.25, at 300 steps 0.75."""
    buffer = with_errors([1.0, 3.0], alpha=1.0, beta=[[0, 0.0], [400, 1.0]], eps=1e-12)

    def smallest() -> float:
        return min(float(buffer.sample(2).weights.min()) for _ in range(20))

    buffer.added = 100
    assert smallest() == pytest.approx(3**-0.25, rel=1e-5)
    buffer.env_steps = 300
    assert smallest() == pytest.approx(3**-0.75, rel=1e-5)


def test_a_batch_takes_one_row_of_each_equal_part_of_the_priority() -> None:
    """Four rows with an eighth, an eighth, a quarter and half of the total: a batch of 8 has them 1, 1, 2, 4 times."""
    buffer = with_errors([1, 1, 2, 4], alpha=1.0, eps=1e-12)
    slots, _ = buffer._draw(8, np.random.default_rng(0))
    assert np.bincount(slots, minlength=4)[:4].tolist() == [1, 1, 2, 4]


# -- ranked -----------------------------------------------------------------------------------------------------------
def test_ranks_between_two_sorts_are_those_of_the_last_sort() -> None:
    buffer = with_errors([float(i) for i in range(100)], alpha=1.0, ranked=True)
    ids = ids_of(buffer)
    buffer._priorities.sort(buffer.tree)  # type: ignore[union-attr]
    buffer.update_priorities(ids[:2], torch.tensor([98.5, 98.0]))  # only 99 is larger than either, so the rank is 2
    assert buffer.tree.leaves[ids[:2] % buffer.slots] == pytest.approx([1 / 2, 1 / 2])


def test_many_new_rows_share_the_first_ranks_instead_of_all_being_first() -> None:
    """A tenth of new rows among 1000: their ranks are 1 to 100, not 100 times 1."""
    buffer = with_errors(np.random.default_rng(0).random(1000).tolist(), alpha=1.0, ranked=True)
    buffer._priorities.sort(buffer.tree)  # type: ignore[union-attr]
    for start in (1000, 1050):
        buffer.add(counted(50, start))
    slots = np.flatnonzero(buffer.tree.leaves)
    new = slots[buffer._transitions(slots).rewards.numpy() >= 1000]
    assert sorted(1 / buffer.tree.leaves[new]) == pytest.approx(range(1, 101))


def test_ranks_after_any_changes_and_a_sort_are_exact() -> None:
    rng = np.random.default_rng(0)
    buffer = prioritized_buffer(60, capacity=60, alpha=1.0, ranked=True)
    errors: dict[int, float] = {}
    for start in range(60, 200, 7):
        buffer.add(counted(7, start))
        batch = buffer.sample(16, rng)
        given = torch.from_numpy(rng.random(16))
        buffer.update_priorities(batch.batch_indexes, given)
        errors |= dict(zip(batch.rewards.long().tolist(), given.tolist(), strict=True))
    buffer._priorities.sort(buffer.tree)  # type: ignore[union-attr]
    slots = np.flatnonzero(buffer.tree.leaves)
    steps = buffer._transitions(slots).rewards.long().tolist()
    place = sorted(range(len(steps)), key=lambda i: -errors.get(steps[i], math.inf))
    seen = [i for i in place if steps[i] in errors]
    assert len(slots) == len(buffer) and len(seen) > 10
    ranks = 1 / buffer.tree.leaves[slots]
    assert [round(ranks[i]) for i in seen] == list(range(len(place) - len(seen) + 1, len(place) + 1))


# -- new rows ---------------------------------------------------------------------------------------------------------
def test_a_new_row_has_the_priority_of_a_row_with_the_largest_error_so_far() -> None:
    """Bit by bit: ε and α are applied to both alike."""
    buffer = prioritized_buffer(4, alpha=0.6, eps=0.5)
    buffer.update_priorities(ids_of(buffer), torch.tensor([1.0, 7.0, 2.0, 3.0]))
    buffer.add(counted(1, start=4))
    leaves = buffer.tree.leaves[buffer.tree.leaves > 0]
    assert leaves[4] == leaves[1] == 7.5**0.6


def test_new_rows_get_the_priorities_that_workers_computed() -> None:
    buffer = PrioritizedReplayBuffer(10, alpha=1.0, eps=1e-12)
    buffer.add(counted(4, priorities=torch.tensor([[4.0], [3.0], [2.0], [1.0]])))
    assert frequencies(buffer) == pytest.approx([0.4, 0.3, 0.2, 0.1], abs=0.01)


def test_only_rows_that_can_be_drawn_have_a_priority() -> None:
    """Whatever episodes, cuts and wrap-arounds there are."""
    stream, buffer = Stream(3, seed=3), PrioritizedReplayBuffer(50)
    rng = np.random.default_rng(0)
    for turn in range(60):
        if turn % 7 == 0:
            stream.cut()
        buffer.add(stream.fragment(int(rng.integers(1, 9))))
        assert np.count_nonzero(buffer.tree.leaves) == len(buffer)
        buffer.rows(buffer.sample(1, rng).batch_indexes)


# -- updates ----------------------------------------------------------------------------------------------------------
def test_priorities_can_be_updated_for_an_earlier_sample() -> None:
    buffer = prioritized_buffer(50)
    one, two = buffer.sample(1), buffer.sample(1)
    while int(two.batch_indexes) == int(one.batch_indexes):
        two = buffer.sample(1)
    buffer.update_priorities(two.batch_indexes, torch.tensor([4.0]))
    buffer.update_priorities(one.batch_indexes, torch.tensor([3.0]))
    slots = [int(batch.batch_indexes) % buffer.slots for batch in (one, two)]
    assert buffer.tree.leaves[slots] == pytest.approx(np.array([3.0, 4.0]) ** 0.6)


def test_the_last_error_of_a_repeated_row_counts() -> None:
    """Errors may carry a gradient."""
    buffer = prioritized_buffer(5)
    index = buffer.sample(1).batch_indexes
    buffer.update_priorities(index.repeat(3), torch.tensor([9.0, 5.0, 2.0], requires_grad=True) * 1)
    assert buffer.tree.leaves[int(index) % buffer.slots] == pytest.approx(2**0.6)


def test_invalid_errors_and_priorities_are_refused_and_change_nothing() -> None:
    """Errors `[N, 1]` would broadcast."""
    buffer = prioritized_buffer(5)
    ids, before = buffer.sample(3).batch_indexes, buffer.tree.leaves.copy()
    finite, shape = r"TD error 1 of 3 is -?(nan|inf)", r"TD errors for \[3\] rows"
    errors = [([1.0, wrong, 1.0], finite) for wrong in (math.nan, math.inf, -math.inf)]
    errors += [([1.0, 1.0], shape), ([[1.0], [1.0], [1.0]], shape)]
    priorities = [(math.nan, "is nan"), (math.inf, "is inf"), (-1.0, "is -1.0.*≥ 0")]
    cases = [(wrong, f"row 1 of 2 {message}") for wrong, message in priorities]
    refusals = (NonFiniteError, ValueError)
    assert not_refused(lambda given: buffer.update_priorities(ids, torch.tensor(given)), errors, refusals) == []

    def add(wrong: float) -> None:
        buffer.add(counted(2, priorities=torch.tensor([[1.0], [wrong]])))

    assert not_refused(add, cases, refusals) == []
    assert (buffer.tree.leaves == before).all() and len(buffer) == 5


@pytest.mark.parametrize("ranked", [False, True])
def test_a_late_update_of_an_overwritten_row_is_dropped_and_counted(ranked: bool) -> None:
    buffer = prioritized_buffer(10, capacity=10, ranked=ranked)
    ids = ids_of(buffer)
    buffer.add(counted(4, start=10))  # rows 0 to 3 are gone
    before = buffer.tree.leaves.copy()
    assert buffer.update_priorities(ids[:3], torch.full((3,), 100.0)) == 3  # other rows are in their places
    assert buffer.update_priorities(ids[3:4], torch.full((1,), 100.0)) == 1  # and in this one, no row
    assert (buffer.tree.leaves == before).all() and buffer.stats()["late_updates"] == 4
    assert buffer.update_priorities(ids[2:6], torch.full((4,), 100.0)) == 2
    changed = np.flatnonzero(buffer.tree.leaves != before)
    assert set(changed) <= {int(i) % buffer.slots for i in ids[4:6]} or ranked
    assert buffer.late_updates == 6


def test_an_update_right_after_its_draw_and_one_by_copied_indexes_do_the_same() -> None:
    one, other = prioritized_buffer(50), prioritized_buffer(50)
    errors = torch.arange(8.0)
    for buffer, copied in ((one, False), (other, True)):
        indexes = buffer.sample(8, np.random.default_rng(0)).batch_indexes
        buffer.update_priorities(indexes.clone() if copied else indexes, errors)
    assert (one.tree.leaves == other.tree.leaves).all()


def test_an_update_of_the_latest_draw_after_rows_were_added_is_checked_like_any_other() -> None:
    buffer = prioritized_buffer(10, capacity=10)
    batch = buffer.sample(10)
    buffer.add(counted(10, start=10))
    assert buffer.update_priorities(batch.batch_indexes, torch.full((10,), 9.0)) == 10
    assert buffer.tree.leaves.max() == 1.0


# -- saving -----------------------------------------------------------------------------------------------------------
def test_a_restored_buffer_sorts_at_the_same_moment_and_gives_the_same_ranks_until_then() -> None:
    """Of 60 rows, a few changed since they were sorted, two of these new; they are sorted when a quarter, 15, did."""
    one, other = (PrioritizedReplayBuffer(60, ranked=True) for _ in range(2))
    one.add(counted(60))
    one.update_priorities(ids_of(one), torch.linspace(0.1, 2.0, 60))
    ranks = one._priorities
    assert isinstance(ranks, Ranked)
    ranks.sort(one.tree)
    one.update_priorities(ids_of(one)[:3], torch.tensor([1.3, 0.7, 0.2]))
    one.add(counted(2, start=60))
    assert (ranks.unseen, 0 < ranks.changed < 15) == (2, True)
    other.load_state_dict(one.state_dict())
    for step in range(20):
        for buffer in (one, other):
            buffer.add(counted(1, start=62 + step))
            buffer.update_priorities(ids_of(one)[step : step + 1], torch.tensor([0.1 * step]))
        assert (one.tree.leaves == other.tree.leaves).all(), step
