"""Draws: what passes between a replay buffer and the learner within an iteration.

This is all that the two know of each other: `Learner.update` iterates over pairs `(rows, steps)`, and calls
`update_priorities` after each if the rows were drawn by priority.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from lightning_rl.sample_batch import Fragment, SampleBatch, typed

__all__ = ["Draw", "Draws"]


class Draw(NamedTuple):
    """Rows for one or more gradient steps.

    Attributes:
        rows: batches of equal size, one after the other.
        steps: number of the batches.
    """

    rows: SampleBatch
    steps: int = 1


class Draws:
    """The draws for the gradient steps of one iteration; iterating over them also acts and stores, as the plan says.

    Args:
        feed: the `ReplayFeed`, which counts the gradient steps that are due.
        plan: gives stored fragments and draws in turn.
        fragments: how many fragments of the plan make the iteration.
    """

    def __init__(self, feed: Any, plan: Iterable[Any], fragments: int = 1) -> None:
        feed.begin_iteration()
        self.feed, self.plan, self.fragments = feed, plan, fragments
        self.device = torch.device("cpu")

    def to(self, device: torch.device | str) -> Self:
        """Give rows on `device`; Lightning calls this."""
        self.device = torch.device(device)
        return self

    def __iter__(self) -> Iterator[Draw]:
        left, on_cpu = self.fragments, self.device.type == "cpu"
        for item in self.plan:
            draw = item if isinstance(item, Draw) else Draw(item)
            if not isinstance(draw.rows, SampleBatch) or isinstance(
                typed(draw.rows), Fragment
            ):  # stored here, or in a shard
                left -= 1
            else:
                yield draw if on_cpu else draw._replace(rows=draw.rows.to(self.device))
            if left <= 0 and self.feed.due <= 0:
                return

    def update_priorities(self, batch: SampleBatch, td_errors: Tensor) -> None:
        """Set the priorities of a drawn batch's rows by their TD errors `[N]`."""
        self.feed.update_priorities(batch.batch_indexes, td_errors)
