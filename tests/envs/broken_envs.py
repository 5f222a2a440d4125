"""Environments that break one promise of the Gymnasium API each, and one that keeps all."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Fine(gym.Env[np.ndarray, int]):
    """Keeps the API; the others break one promise each."""

    def __init__(self, size: int = 2) -> None:
        self.observation_space: gym.Space[Any] = gym.spaces.Box(-1, 1, (size,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self.observe(), {}

    def observe(self) -> Any:
        return np.zeros(self.observation_space.shape or (2,), np.float32)

    def step(self, action: int) -> Any:
        return self.observe(), 0.0, False, False, {}


class OldStep(Fine):
    def step(self, action: int) -> Any:
        return self.observe(), 0.0, False, {}


class OldReset(Fine):
    def reset(self) -> Any:  # type: ignore[override]
        return self.observe()


class NoInfo(Fine):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.observe()


class Outside(Fine):
    def observe(self) -> Any:
        return np.full(2, 3.0, np.float32)


class WrongShape(Fine):
    def observe(self) -> Any:
        return np.zeros(3, np.float32)


class WrongDtype(Fine):
    def observe(self) -> Any:
        return [0.0, 0.0]


class NaN(Fine):
    def observe(self) -> Any:
        return np.array([0.0, np.nan], np.float32)


class NoSpace(Fine):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = "four numbers"  # type: ignore[assignment]


class ArrayReward(Fine):
    def step(self, action: int) -> Any:
        return self.observe(), np.zeros(2), False, False, {}


class NaNReward(Fine):
    def step(self, action: int) -> Any:
        return self.observe(), float("nan"), False, False, {}


class IntegerEnd(Fine):
    def step(self, action: int) -> Any:
        return self.observe(), 0.0, 0, False, {}


class Unseeded(Fine):
    def observe(self) -> Any:
        return np.random.default_rng().uniform(-1, 1, 2).astype(np.float32)


class Raises(Fine):
    def step(self, action: int) -> Any:
        raise ZeroDivisionError("no wheels")
