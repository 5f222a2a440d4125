"""Batches in random order."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_rl.rllib.offline.input_reader import InputReader

__all__ = ["ShuffledInput"]


class ShuffledInput(InputReader):
    """Holds the last `n` batches of a reader, and gives each of them once, a random one at a time.

    RLlib's draws with replacement: some batches never come, and others repeat.

    Args:
        child: the reader.
        n: batches that are held; 0 or 1 gives them as they come.
        seed: the seed of the order.
    """

    def __init__(self, child: InputReader, n: int = 0, seed: int = 0) -> None:
        self.child, self.n = child, max(1, n)
        self.buffer: list[Any] = []
        self._generator = np.random.default_rng(seed)

    def next(self) -> Any:
        """A random one of the held batches, in whose place the next one comes."""
        while len(self.buffer) < self.n:
            self.buffer.append(self.child.next())
        return self.buffer.pop(self._generator.integers(len(self.buffer)))
