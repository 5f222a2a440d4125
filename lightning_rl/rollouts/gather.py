"""Puts together what several workers gave, always in worker order: it does not matter who finished first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lightning_rl.sample_batch import SampleBatch, concat_samples

__all__ = ["Receipt", "joined", "merged", "owned", "split"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What workers collected, told without bringing it here.

    Attributes:
        fragments: a list of them, or what stands for one in another process and can be handed on.
        env_steps: rows of experience in them.
        gradient_steps: that the weights which acted had taken.
        count: how many fragments, one of each logical worker that was asked.
        nbytes: of all their columns.
    """

    fragments: Any
    env_steps: int
    gradient_steps: int
    count: int = 1
    nbytes: int = 0


def joined(fragments: Sequence[SampleBatch]) -> SampleBatch:
    """Fragments side by side along the environments; shorter ones are padded with rows that are not experience."""
    return concat_samples(fragments)


def merged(metrics: Sequence[dict[str, list[float]]]) -> dict[str, list[float]]:
    """Metric lists of several workers one after the other."""
    return {name: [value for part in metrics for value in part[name]] for name in metrics[0]}


def split(count: int, parts: int) -> list[int]:
    """`count` in `parts` shares that differ by at most one; the first ones get the rest."""
    return [count // parts + (part < count % parts) for part in range(parts)]


def owned(arrays: SampleBatch) -> SampleBatch:
    """Arrays as tensors that can be written to: memory shared between processes is copied."""
    return arrays.map(lambda array: torch.from_numpy(array if array.flags.writeable else array.copy()))
