"""Compares fragments column by column."""

from __future__ import annotations

import torch

from lightning_rl.sample_batch import MultiAgentBatch, SampleBatch


def assert_equal_fragments(first: SampleBatch | MultiAgentBatch, second: SampleBatch | MultiAgentBatch) -> None:
    """Raise unless both have the same columns, or policies, with bitwise equal tensors."""
    mine, theirs = dict(first.items()), dict(second.items())
    assert [*mine] == [*theirs]
    for name in mine:
        if isinstance(mine[name], SampleBatch):
            assert_equal_fragments(mine[name], theirs[name])
        else:
            assert torch.equal(mine[name], theirs[name]), name
