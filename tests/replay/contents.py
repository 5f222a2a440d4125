"""Everything that a buffer holds."""

from __future__ import annotations

import numpy as np

from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.replay.ring import SAMPLEABLE
from lightning_rl.sample_batch import SampleBatch


def everything(buffer: ReplayBuffer) -> SampleBatch:
    """All rows that can be drawn, once each."""
    assert buffer.ring is not None
    slots = np.flatnonzero(buffer.ring.flags >= SAMPLEABLE)
    return buffer.rows(buffer.ring.ids(slots))
