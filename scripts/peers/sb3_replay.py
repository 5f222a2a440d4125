"""Stable-Baselines3's buffer in the replay comparison; the last line printed is a JSON object. It has no priorities.

Runs in its own environment: `python scripts/benchmark.py setup`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from replay_work import BATCH, ENVS, Columns, Kind, blocks, measure
from stable_baselines3.common.buffers import ReplayBuffer


class Uniform:
    """`ReplayBuffer`; it takes one step of every environment at a time, and its batches are tensors."""

    def __init__(self, kind: Kind) -> None:
        low, high = (0, 255) if kind.dtype == np.uint8 else (-np.inf, np.inf)
        obs_space = spaces.Box(low, high, kind.shape, kind.dtype)
        self.buffer = ReplayBuffer(kind.capacity, obs_space, spaces.Discrete(4), device="cpu", n_envs=ENVS)
        self.infos: list[dict[str, Any]] = [{} for _ in range(ENVS)]

    def add(self, block: Columns) -> None:
        columns = (block[name] for name in ("obs", "next_obs", "actions", "rewards", "terminated"))
        for step in zip(*columns, strict=True):
            self.buffer.add(*step, self.infos)

    def sample(self) -> Any:
        return self.buffer.sample(BATCH)

    def update(self, batch: Any, errors: np.ndarray) -> None:
        raise TypeError("a uniform buffer has no priorities")


if __name__ == "__main__":
    measure(lambda kind, prioritized: None if prioritized else Uniform(kind), blocks)
