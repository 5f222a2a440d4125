"""An environment for the tests and the benchmark on a GPU."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

__all__ = ["Blocks"]


class Blocks(gym.Env[np.ndarray, int]):
    """A Pong-like image: a bright block falls, and a paddle of three columns under it catches it for a reward of 1.

    Observations are uint8 `[size, size, 1]`. It costs little beside Atari's emulator, so a run measures the network.

    Args:
        size: pixels of a side.
        steps: of an episode.
    """

    def __init__(self, size: int = 84, steps: int = 200) -> None:
        self.size, self.steps = size, steps
        self.observation_space = spaces.Box(0, 255, (size, size, 1), np.uint8)
        self.action_space = spaces.Discrete(3)
        self.unit = max(1, size // 12)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.paddle, self.t = 6, 0
        self.block = [0, int(self.np_random.integers(12))]
        return self.image(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.t += 1
        self.paddle = min(10, max(1, self.paddle + int(action) - 1))
        self.block[0] += 1
        reward = 0.0
        if self.block[0] == 11:
            reward = 1.0 if abs(self.block[1] - self.paddle) <= 1 else -1.0
            self.block = [0, int(self.np_random.integers(12))]
        return self.image(), reward, False, self.t >= self.steps, {}

    def image(self) -> np.ndarray:
        """The picture."""
        image, unit = np.zeros((self.size, self.size, 1), np.uint8), self.unit
        row, column = self.block
        image[row * unit : (row + 1) * unit, column * unit : (column + 1) * unit] = 255
        image[11 * unit : 12 * unit, (self.paddle - 1) * unit : (self.paddle + 2) * unit] = 128
        return image
