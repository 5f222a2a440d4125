"""ReplayShards: which shard gets which fragment, draw and priority, and when a draw waits for a shard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_rl.data.shards import MAX_INFLIGHT, ReplayShard, ReplayShards
from lightning_rl.errors import CheckpointError
from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.replay.prioritized import PrioritizedReplayBuffer
from lightning_rl.rollouts.processes.remote_objects import make_objects
from lightning_rl.sample_batch import SampleBatch
from tests.replay.streams import Stream
from tests.rollouts.fragment_equality import assert_equal_fragments

EPS = 1e-6


def shards(count: int = 2, capacity: int = 40, batch_size: int = 4, ahead: int = 1, alpha: float = 1.0) -> ReplayShards:
    buffers = [{"buffer": PrioritizedReplayBuffer(capacity, alpha=alpha, eps=EPS)} for _ in range(count)]
    return ReplayShards(make_objects(ReplayShard, buffers, remote=False), batch_size, ahead=ahead, seed=7)


def buffer_of(replay: ReplayShards, shard: int) -> Any:
    return replay.shards[shard].object.buffer


def stored_rows(replay: ReplayShards, shard: int) -> set[int]:
    """Actions, of which each is used once."""
    ring = buffer_of(replay, shard).ring
    return set(ring.columns.array("actions")[ring.flags >= 128].tolist())


def fill(fragments: int = 4, **keywords: Any) -> tuple[ReplayShards, Stream]:
    replay, stream = shards(**keywords), Stream(2, seed=1, longest=1000)
    for _ in range(fragments):
        replay.add([stream.fragment(5)])
    return replay, stream


def draw(replay: ReplayShards, env_steps: int = 0) -> SampleBatch:
    batch = replay.sample(env_steps)
    assert batch is not None
    return batch


def test_fragments_go_to_the_shards_in_turn() -> None:
    """Ten steps a fragment; actions count them."""
    replay, _ = fill()
    assert stored_rows(replay, 0) == {*range(1, 11), *range(21, 31)}
    assert stored_rows(replay, 1) == {*range(11, 21), *range(31, 41)}
    assert len(replay) == 40


@pytest.mark.parametrize("masked", [False, True])
def test_fragments_of_two_workers_do_not_continue_each_other_in_a_shard(masked: bool) -> None:
    """Nothing is ever observed but zeros: step t = 3 of one worker would go on where the other stopped before it.

    Rewards of worker w are 10ʷ, and sums are of three: 1, 2, 3 or 10, 20, 30 within a fragment, 12 or 21 across.
    """
    shard = ReplayShard(ReplayBuffer(100, n_step=3, gamma=1.0))
    for number in range(6):
        shard.add([constant_fragment(start=3 * (number // 2), reward=10.0 ** (number % 2), masked=masked)])
    assert shard.buffer.ring is not None
    flags = shard.buffer.ring.flags
    rows = shard.buffer.rows(shard.buffer.ring.ids(np.flatnonzero(flags >= 128)))
    assert set(rows.rewards.tolist()) == ({1.0, 2.0, 10.0, 20.0} if masked else {1.0, 2.0, 3.0, 10.0, 20.0, 30.0})


def constant_fragment(start: int, reward: float, masked: bool) -> SampleBatch:
    """Three steps of an episode that goes on."""
    columns = {"obs": torch.zeros(4, 1, 2), "actions": torch.zeros(3, 1, dtype=torch.int64)}
    ends = {name: torch.zeros(3, 1, dtype=torch.bool) for name in ("terminated", "truncated")}
    t = torch.arange(start, start + 3, dtype=torch.int32).view(3, 1)
    mask = {"action_mask": torch.ones(3, 1, 2, dtype=torch.bool)} if masked else {}
    valid = torch.ones(3, 1, dtype=torch.bool)
    return SampleBatch({**columns, **ends, **mask}, rewards=torch.full((3, 1), reward), valid=valid, t=t)


def test_batches_come_from_the_shards_in_turn_and_their_indexes_name_the_shard() -> None:
    replay, _ = fill()
    for turn in range(6):
        batch = draw(replay)
        assert set(batch.actions.tolist()) <= stored_rows(replay, turn % 2)
        indexes, shard = np.divmod(batch.batch_indexes.numpy(), 2)
        assert (shard == turn % 2).all()
        assert buffer_of(replay, turn % 2).rows(indexes).actions.tolist() == batch.actions.tolist()


@pytest.mark.parametrize("turn", [0, 1])
def test_td_errors_become_the_priorities_of_the_rows_of_their_shard(turn: int) -> None:
    replay, _ = fill()
    batch = [draw(replay) for _ in range(turn + 1)][-1]
    before = [buffer_of(replay, shard).tree.total for shard in (0, 1)]
    errors = -torch.arange(1.0, 5.0) * (1 + batch.batch_indexes.unique(return_inverse=True)[1])
    replay.update_priorities(batch.batch_indexes, errors)
    last = dict(zip(batch.batch_indexes.tolist(), errors.abs().tolist(), strict=True))  # of a row drawn twice
    buffer = buffer_of(replay, turn)
    for index, error in last.items():
        slot = buffer.ring.locate(np.array([index // 2]))[0]
        assert buffer.tree.get(slot) == pytest.approx([error + EPS])
    assert buffer.tree.total != before[turn] and buffer_of(replay, 1 - turn).tree.total == before[1 - turn]


def test_a_late_update_of_an_overwritten_row_is_dropped_and_counted() -> None:
    """Each shard gets forty rows more and holds twenty: all rows of the draw are gone by then."""
    replay, stream = fill(2, capacity=20)
    batch = draw(replay)
    for _ in range(8):
        replay.add([stream.fragment(5)])
    before = [buffer_of(replay, shard).tree.get(np.arange(20)).tolist() for shard in (0, 1)]
    replay.update_priorities(batch.batch_indexes, torch.full((4,), 1e9))
    assert replay.late_updates == 4
    assert [buffer_of(replay, shard).tree.get(np.arange(20)).tolist() for shard in (0, 1)] == before


def test_shards_give_no_batch_before_one_has_enough_rows() -> None:
    replay, stream = shards(batch_size=20), Stream(2, seed=1, longest=1000)
    for fragments in range(1, 4):
        replay.add([stream.fragment(5)])
        assert replay.sample(0) is None, fragments
    replay.add([stream.fragment(5)])
    batch = replay.sample(0) or replay.sample(0)
    assert batch is not None and len(batch.actions) == 20


def test_a_shard_that_has_too_few_rows_is_passed_over() -> None:
    """Only the first has a batch."""
    replay, _ = fill(1, batch_size=10)
    for _ in range(3):
        assert set(draw(replay).batch_indexes.numpy() % 2) == {0}


def test_draws_in_flight_use_the_priorities_at_their_submission() -> None:
    """`ahead` draws of each shard were submitted before one row got nearly all the priority."""
    replay, _ = fill(ahead=2, alpha=1.0)
    first = draw(replay)
    row = first.batch_indexes[:1]
    replay.update_priorities(row, torch.tensor([1e9]))
    only = [set(draw(replay).batch_indexes.tolist()) == set(row.tolist()) for _ in range(8)]
    # Shards 1, 0, 1 and the one that replaced the first were drawn before; then every draw of shard 0 is that row.
    assert only == [False, False, False, False, False, True, False, True]


def test_beta_follows_the_environment_steps_of_the_run() -> None:
    buffer = PrioritizedReplayBuffer(40, alpha=1.0, beta={"type": "linear", "initial": 0.0, "final": 1.0, "steps": 100})
    replay = ReplayShards(make_objects(ReplayShard, [{"buffer": buffer}], remote=False), 8, ahead=1)
    replay.add([Stream(2, seed=1, longest=1000).fragment(10)])
    buffer.update_priorities(buffer.ring.ids(np.arange(20)), np.arange(1.0, 21.0))  # type: ignore[union-attr]
    early = draw(replay)
    replay.discard_draws()
    late = draw(replay, 100)
    assert (early.weights == 1.0).all() and late.weights.min() < 0.9


def test_a_uniform_buffer_takes_no_priorities() -> None:
    replay = ReplayShards(make_objects(ReplayShard, [{"buffer": ReplayBuffer(40)}], remote=False), 4)
    replay.add([Stream(2, seed=1).fragment(10)])
    batch = draw(replay)
    assert "weights" not in batch
    replay.update_priorities(batch.batch_indexes, torch.ones(4))


def test_loaded_shards_draw_as_the_saved_ones() -> None:
    replay, stream = fill(5)
    batch = draw(replay)
    replay.update_priorities(batch.batch_indexes, torch.tensor([1.0, 5.0, 0.1, 3.0]))
    replay.discard_draws()
    state = replay.state_dict()
    twin = shards()
    twin.load_state_dict(state)
    assert len(twin) == len(replay)
    fragment = stream.fragment(5)
    for each in (replay, twin):
        each.add([fragment])
    for _ in range(4):
        assert_equal_fragments(draw(replay), draw(twin))
    assert stored_rows(twin, 1) == stored_rows(replay, 1)


def test_a_state_of_another_number_of_shards_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"2 shards, this one 3.*data\.num_shards"):
        shards(3).load_state_dict(shards(2).state_dict())


class Slow:
    """An object whose calls are done only when `result` is called; records the largest number of calls in flight."""

    def __init__(self) -> None:
        self.open = self.most = self.requests = 0

    def submit(self, method: str, *arguments: Any) -> Slow:
        self.open += 1
        self.requests += 1
        self.most = max(self.most, self.open)
        return self

    def done(self) -> bool:
        return False

    def result(self) -> int:
        self.open -= 1
        return 3


def test_adding_waits_for_a_slow_shard_when_too_many_updates_are_in_flight() -> None:
    slow = Slow()
    replay = ReplayShards([slow], 4)
    for _ in range(MAX_INFLIGHT):
        replay.add(["fragment"])
    assert slow.open == MAX_INFLIGHT and len(replay) == 0  # add has not waited for a result
    for _ in range(100):
        replay.add(["fragment"])
    assert slow.most == MAX_INFLIGHT + 1 and len(replay) == 3
