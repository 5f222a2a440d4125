"""Derives every random seed of a run from the run's seed, by stream name and index; no generator is shared."""

from __future__ import annotations

import numpy as np

__all__ = ["STREAMS", "derive_seed"]

STREAMS = {"learner": 0, "rollout": 1, "evaluation": 2, "replay": 3, "init": 4, "perturbation": 5}


def derive_seed(seed: int, stream: str, *indices: int) -> int:
    """A 63-bit seed for `indices` (worker, fragment, …) of a stream; other names and indices give independent seeds.

    Raises:
        ValueError: `stream` is not one of `STREAMS`, or a number is negative.
    """
    if stream not in STREAMS:
        raise ValueError(f"stream={stream!r} is unknown; expected one of {', '.join(STREAMS)}")
    if min(seed, *indices, 0) < 0:
        raise ValueError(f"seed={seed} with indices {list(indices)}: expected none below 0")
    sequence = np.random.SeedSequence(seed, spawn_key=(STREAMS[stream], *indices))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
