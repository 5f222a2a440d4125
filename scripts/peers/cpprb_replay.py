"""cpprb's buffers (C++ trees) in the replay comparison; the last line printed is a JSON object.

Runs in its own environment: `python scripts/benchmark.py setup`.
"""

from __future__ import annotations

from typing import Any

import cpprb
import numpy as np
import torch
from replay_work import ALPHA, BATCH, BETA, Columns, Kind, blocks, measure, rows_of


class Uniform:
    """`ReplayBuffer`; its batches are numpy arrays, which a learner takes as tensors."""

    def __init__(self, kind: Kind) -> None:
        self.buffer = cpprb.ReplayBuffer(kind.capacity, columns(kind))

    def add(self, block: Columns) -> None:
        self.buffer.add(**block)

    def sample(self) -> Any:
        return tensors(self.buffer.sample(BATCH))

    def update(self, batch: Any, errors: np.ndarray) -> None:
        raise TypeError("a uniform buffer has no priorities")


class Prioritized(Uniform):
    """`PrioritizedReplayBuffer`, proportional."""

    def __init__(self, kind: Kind) -> None:
        self.buffer = cpprb.PrioritizedReplayBuffer(kind.capacity, columns(kind), alpha=ALPHA)

    def sample(self) -> Any:
        return tensors(self.buffer.sample(BATCH, beta=BETA))

    def update(self, batch: Any, errors: np.ndarray) -> None:
        self.buffer.update_priorities(batch["indexes"], errors)


def tensors(batch: dict[str, Any]) -> dict[str, Any]:
    indexes = {"indexes": batch.pop("indexes")} if "indexes" in batch else {}
    return {name: torch.from_numpy(column) for name, column in batch.items()} | indexes


def columns(kind: Kind) -> dict[str, Any]:
    obs = {"shape": kind.shape, "dtype": kind.dtype}
    numbers = {"actions": {"dtype": np.int64}, "rewards": {}, "terminated": {"dtype": np.bool_}}
    return {"obs": obs, "next_obs": obs, **numbers}


if __name__ == "__main__":
    measure(
        lambda kind, prioritized: Prioritized(kind) if prioritized else Uniform(kind),
        lambda kind: [rows_of(block) for block in blocks(kind)],
    )
