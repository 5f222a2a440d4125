"""Sequences: where they are cut, that minibatches keep them whole, and that padding comes and goes without a trace."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from lightning_rl.sample_batch import SampleBatch, flatten_fragment, padding, to_sequences


def fragment() -> SampleBatch:
    """Two environments, 7 rows; the first ends at row 2 (row 3 is the reset). Values are 10 · env + time."""
    number = torch.arange(8).unsqueeze(1) + torch.tensor([0, 10])  # [T+1, B]
    terminated, valid = torch.zeros(7, 2, dtype=torch.bool), torch.ones(7, 2, dtype=torch.bool)
    terminated[2, 0], valid[3, 0] = True, False
    return SampleBatch(
        obs=number,
        state_in={"0": number.float()},
        actions=number[:-1],
        terminated=terminated,
        truncated=torch.zeros_like(terminated),
        valid=valid,
    )


def test_sequences_end_with_the_episode_and_after_max_seq_len() -> None:
    """Rows 0 1 2 | 4 5, 6 of environment 0 and 10 11, 12 13, 14 15, 16 of environment 1, at most 2 long."""
    rows = to_sequences(fragment(), 2)
    assert rows.seq_lens.tolist() == [2, 1, 2, 1, 2, 2, 2, 1]
    assert rows.obs.tolist() == [0, 1, 2, 4, 5, 6, *range(10, 17)] == rows.actions.tolist()


def test_each_sequence_starts_from_the_state_recorded_there() -> None:
    rows = to_sequences(fragment(), 3)
    assert rows.seq_lens.tolist() == [3, 3, 3, 3, 1]
    assert rows.state_in["0"].tolist() == [0, 4, 10, 13, 16]


def test_rows_without_sequences_are_the_same_rows_in_time_order() -> None:
    assert sorted(flatten_fragment(fragment()).obs.tolist()) == to_sequences(fragment(), 20).obs.tolist()


def test_minibatches_hold_whole_sequences_and_each_row_once() -> None:
    rows = to_sequences(fragment(), 3)
    parts = rows.minibatches(2, torch.Generator().manual_seed(0))
    assert sorted(torch.cat([torch.as_tensor(part.obs) for part in parts]).tolist()) == sorted(rows.obs.tolist())
    for part in parts:
        starts = part.seq_lens.cumsum(0) - part.seq_lens
        assert part.obs[starts].tolist() == part.state_in["0"].tolist()
        assert part.count == int(part.seq_lens.sum()) == len(part.actions)


def test_minibatches_differ_between_generators() -> None:
    rows = to_sequences(fragment(), 1)
    first, second = (rows.minibatches(2, torch.Generator().manual_seed(seed))[0].obs.tolist() for seed in (0, 1))
    assert first != second


def test_more_minibatches_than_sequences_are_refused() -> None:
    with pytest.raises(ValueError, match="2 sequences; minibatches=3"):
        two = {"obs": torch.arange(4), "seq_lens": torch.tensor([2, 2]), "state_in": {"0": torch.zeros(2)}}
        SampleBatch(two).minibatches(3)


def test_padding_repeats_a_sequence_s_own_first_row_and_is_dropped_again() -> None:
    """Lengths 1 and 3: rows 0 | 1 2 3 become 0 0 0 | 1 2 3, of which places 0 3 4 5 are rows."""
    gaps = padding(torch.tensor([1, 3]))
    assert gaps is not None
    assert gaps.rows.tolist() == [0, 0, 0, 1, 2, 3]
    assert gaps.kept.tolist() == [0, 3, 4, 5]
    rows = torch.randn(4, 2)
    assert_close(rows[gaps.rows][gaps.kept], rows)


def test_equal_lengths_need_no_padding() -> None:
    assert padding(torch.tensor([3, 3])) is None
