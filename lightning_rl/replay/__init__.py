"""Replay buffers: experience is stored once and sampled as transitions or sequences, uniformly or by priority."""

from __future__ import annotations

from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.replay.hindsight import HindsightReplayBuffer
from lightning_rl.replay.prioritized import PrioritizedReplayBuffer
from lightning_rl.replay.sequences import PrioritizedSequenceReplayBuffer, SequenceReplayBuffer
from lightning_rl.replay.storage import check_fits_memory, estimated_bytes

__all__ = [
    "HindsightReplayBuffer",
    "PrioritizedReplayBuffer",
    "PrioritizedSequenceReplayBuffer",
    "ReplayBuffer",
    "SequenceReplayBuffer",
    "check_fits_memory",
    "estimated_bytes",
]
