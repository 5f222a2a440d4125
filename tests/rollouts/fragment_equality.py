"""Compares fragments column by column."""

from __future__ import annotations

import torch

from lightning_rl.sample_batch import MultiAgentBatch, SampleBatch


def assert_equal_fragments(first: SampleBatch | MultiAgentBatch, second: SampleBatch | MultiAgentBatch) -> None:
    """Raise unless both have the same columns, or policies, with bitwise equal tensors."""
    assert [*first] == [*second]
    for name in first:
        if isinstance(first[name], SampleBatch):
            assert_equal_fragments(first[name], second[name])
        else:
            assert torch.equal(first[name], second[name]), name
