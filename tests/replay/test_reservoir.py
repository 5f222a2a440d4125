"""ReservoirReplayBuffer: every row of the stream is kept with the same probability."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.replay.reservoir import ReservoirReplayBuffer
from tests.replay.streams import Stream, reward_of


def test_every_row_of_the_stream_is_kept_with_the_same_probability() -> None:
    """100 seeds, 20 of some 250 rows: χ² over tenths of the stream, and the mean number kept, at 5 deviations."""
    kept = []
    for seed in range(100):
        stream, buffer = Stream(2, seed=0, longest=9), ReservoirReplayBuffer(20, seed=seed)
        for _ in range(10):
            buffer.add(stream.fragment(15))
        assert len(buffer) == 20
        kept.append(buffer._numbers.copy())
    rows = buffer.seen
    tenths = np.bincount(np.concatenate(kept) * 10 // rows, minlength=10)
    sizes = np.bincount(np.arange(rows) * 10 // rows) / rows * 2000
    chi = ((tenths - sizes) ** 2 / sizes).sum()
    assert rows > 200 and chi < 9 + 5 * np.sqrt(18)


@pytest.mark.parametrize("n_step", [1, 3])
def test_kept_rows_are_the_transitions_that_a_ring_would_give(n_step: int) -> None:
    """n-step sums are complete when a row is kept, although its episode goes on in the next fragment."""
    stream = Stream(2, seed=4, longest=30)
    reservoir, ring = (kind(1000, n_step=n_step, gamma=0.9) for kind in (ReservoirReplayBuffer, ReplayBuffer))
    for steps in (3, 1, 40, 200, 7):
        fragment = stream.fragment(steps)
        reservoir.add(fragment)
        ring.add(fragment)
    assert ring.ring is not None
    every = ring.rows(ring.ring.ids(np.flatnonzero(ring.ring.flags >= 128)))
    expected = {action: i for i, action in enumerate(every.actions.tolist())}
    assert len(ring) - len(reservoir) <= 2 * (n_step - 1)  # the newest of each environment may grow
    kept = reservoir.rows(np.arange(len(reservoir)))
    order = [expected[action] for action in kept.actions.tolist()]
    for name in ("obs", "next_obs", "rewards", "discounts", "terminated"):
        assert_close(kept[name], every[name][order])


def test_draws_are_uniform_over_kept_rows_and_rows_can_be_read_again() -> None:
    stream, buffer = Stream(1, seed=0, longest=9), ReservoirReplayBuffer(16, seed=1)
    for _ in range(20):
        buffer.add(stream.fragment(20))
    batch = buffer.sample(16, np.random.default_rng(0))
    assert torch.equal(buffer.rows(batch.batch_indexes).actions, batch.actions)
    assert batch.rewards.tolist() == [reward_of(action) for action in batch.actions.tolist()]
    generator = np.random.default_rng(0)
    drawn = torch.cat([buffer.sample(16, generator).actions for _ in range(250)])
    counts = drawn.unique(return_counts=True)[1].double()
    assert len(counts) == 16 and ((counts - 250) ** 2 / 250).sum() < 15 + 5 * np.sqrt(30)


def test_rows_that_were_dropped_are_refused() -> None:
    stream, buffer = Stream(1, seed=0, longest=9), ReservoirReplayBuffer(4)
    buffer.add(stream.fragment(60))
    gone = next(number for number in range(40) if number not in buffer._numbers)
    with pytest.raises(ValueError, match=f"such as {gone}"):
        buffer.rows(np.array([gone]))


def test_a_loaded_reservoir_keeps_and_draws_the_same_rows() -> None:
    stream = Stream(2, seed=0, longest=9)
    buffers = [ReservoirReplayBuffer(30, n_step=3, seed=5) for _ in range(2)]
    for _ in range(6):
        buffers[0].add(stream.fragment(11))
    file = io.BytesIO()
    torch.save(buffers[0].state_dict(), file)
    file.seek(0)
    buffers[1].load_state_dict(torch.load(file, weights_only=True))
    for _ in range(4):
        fragment = stream.fragment(11)
        for buffer in buffers:
            buffer.add(fragment)
    first, second = (buffer.sample(30) for buffer in buffers)
    for name in first:
        assert torch.equal(first[name], second[name])
    assert buffers[0].seen == buffers[1].seen > 60
