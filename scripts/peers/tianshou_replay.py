"""Tianshou's buffers (numba trees) in the replay comparison; the last line printed is a JSON object.

Runs in its own environment: `python scripts/benchmark.py setup`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from replay_work import ALPHA, BATCH, BETA, BLOCK, Columns, Kind, blocks, measure, rows_of
from tianshou.data import Batch, PrioritizedReplayBuffer, ReplayBuffer


class Uniform:
    """`ReplayBuffer`; it takes one row at a time, and its batches are numpy arrays, handed on as tensors."""

    names = ("obs", "act", "rew", "terminated", "obs_next")

    def __init__(self, kind: Kind) -> None:
        self.buffer: Any = ReplayBuffer(kind.capacity)

    def add(self, block: Columns) -> None:
        for row in range(BLOCK):
            self.buffer.add(Batch({name: column[row] for name, column in block.items()}))

    def sample(self) -> Any:
        batch, indexes = self.buffer.sample(BATCH)
        return {name: torch.from_numpy(batch[name]) for name in self.names}, indexes

    def update(self, batch: Any, errors: np.ndarray) -> None:
        raise TypeError("a uniform buffer has no priorities")


class Prioritized(Uniform):
    """`PrioritizedReplayBuffer`, proportional."""

    names = (*Uniform.names, "weight")

    def __init__(self, kind: Kind) -> None:
        self.buffer = PrioritizedReplayBuffer(kind.capacity, ALPHA, BETA)

    def update(self, batch: Any, errors: np.ndarray) -> None:
        self.buffer.update_weight(batch[1], errors)


def named(block: Columns) -> Columns:
    """Rows under its names."""
    block = rows_of(block)
    names = {"obs": "obs", "next_obs": "obs_next", "actions": "act", "rewards": "rew", "terminated": "terminated"}
    columns = {own: block[name] for name, own in names.items()}
    return {**columns, "truncated": np.zeros_like(block["terminated"])}


def fill(side: Any, kind: Kind) -> None:
    """From the columns of one buffer: row by row a million would take minutes."""
    given = [named(block) for block in blocks(kind)]
    columns = {name: np.concatenate([block[name] for block in given]) for name in given[0]}
    rows = np.arange(kind.capacity) % len(columns["rew"])
    whole = Batch({name: column[rows] for name, column in columns.items()}, done=columns["terminated"][rows])
    source = ReplayBuffer(kind.capacity)
    source.set_batch(whole)
    source._size = kind.capacity
    side.buffer.update(source)


if __name__ == "__main__":
    measure(
        lambda kind, prioritized: Prioritized(kind) if prioritized else Uniform(kind),
        lambda kind: [named(block) for block in blocks(kind)],
        fill,
    )
