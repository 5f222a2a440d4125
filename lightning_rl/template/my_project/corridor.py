"""An environment: a corridor whose right end pays."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Corridor(gym.Env[np.ndarray, np.int64]):
    """Starts somewhere in the left half; each step costs 0.01, the right end pays 1 and ends the episode.

    Args:
        length: number of places, at least 4.
    """

    def __init__(self, length: int = 8) -> None:
        self.length = length
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)  # left, right

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode; `self.np_random` is seeded by `super().reset`."""
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(self.length // 2))
        return self.observe(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Go one place; a time limit is `truncated`, which `env.max_episode_steps` sets."""
        self.place = max(0, self.place + (1 if action == 1 else -1))
        arrived = self.place >= self.length - 1
        return self.observe(), 1.0 if arrived else -0.01, arrived, False, {}

    def observe(self) -> np.ndarray:
        """The place, from 0 to 1."""
        return np.array([self.place / (self.length - 1)], dtype=np.float32)
