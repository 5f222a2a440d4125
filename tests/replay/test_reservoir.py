"""ReservoirReplayBuffer: every row of the stream is kept with the same probability."""

from __future__ import annotations

import numpy as np
import pytest
from torch.testing import assert_close

from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.replay.reservoir import ReservoirReplayBuffer
from tests.replay.contents import everything
from tests.replay.streams import Stream


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
    every = everything(ring)
    expected = {action: i for i, action in enumerate(every.actions.tolist())}
    assert len(ring) - len(reservoir) <= 2 * (n_step - 1)  # the newest of each environment may grow
    kept = reservoir.rows(np.arange(len(reservoir)))
    order = [expected[action] for action in kept.actions.tolist()]
    for name in ("obs", "next_obs", "rewards", "discounts", "terminated"):
        assert_close(kept[name], every[name][order])
