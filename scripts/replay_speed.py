"""This project's replay buffers in the replay comparison; the last line printed is a JSON object.

python scripts/replay_speed.py --vectors 1000000 --images 20000
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from peers.replay_work import ALPHA, BATCH, BETA, Kind, fragments, measure

from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.replay.prioritized import PrioritizedReplayBuffer
from lightning_rl.sample_batch import SampleBatch


class Side:
    """A buffer; its batches are tensors, and it takes fragments as workers give them."""

    def __init__(self, kind: Kind, prioritized: bool) -> None:
        self.generator = np.random.default_rng(0)
        self.buffer: Any = (
            PrioritizedReplayBuffer(kind.capacity, alpha=ALPHA, beta=BETA)
            if prioritized
            else ReplayBuffer(kind.capacity)
        )

    def add(self, block: SampleBatch) -> None:
        self.buffer.add(block)

    def sample(self) -> SampleBatch:
        return self.buffer.sample(BATCH, self.generator)

    def update(self, batch: SampleBatch, errors: np.ndarray) -> None:
        self.buffer.update_priorities(batch.batch_indexes, torch.from_numpy(errors))


if __name__ == "__main__":
    measure(Side, lambda kind: [SampleBatch(fragment).torch() for fragment in fragments(kind)])
