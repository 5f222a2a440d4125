"""Environments whose infos, errors and ends no vector environment expects."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import gymnasium as gym
import numpy as np


class OddInfos(gym.Env[np.ndarray, Any]):
    """Step n gives info n of `INFOS`, or one that depends on the environment's number."""

    observation_space: gym.Space[Any] = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, number: int = 0) -> None:
        self.number, self.steps = number, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), self.info()

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, self.steps == len(INFOS) + 2, False, self.info()

    def info(self) -> Any:
        return INFOS[self.steps % len(INFOS)](self.number)


INFOS: list[Any] = [
    lambda number: {"path": np.zeros((number, 2))},
    lambda number: None,
    lambda number: {"a": None if number else 1.0},
    lambda number: {"a": {"b": 1} if number else 3.0},
    lambda number: {"a": 1.0 if number else {"b": {"c": 1}}},
    lambda number: {"a": 0.5 if number else 1},
    lambda number: {"a": "text" if number else 2**80},
    lambda number: {"a": np.zeros(1 + 2 * number), "final_info": number, "final_obs": number, "_final_obs": 1},
    lambda number: {f"key {index}": [index] * number for index in range(3 * number)},
    lambda number: {"function": lambda: number, 3: number, "_3": "text"},
    lambda number: {"a": {"b": np.zeros(number)}, "_a": {}},
]


class TwoArgumentsError(Exception):
    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} {other}")


class Failing(OddInfos):
    """Its third step fails, in a process of its own only."""

    def __init__(self, how: str = "", number: int = 0) -> None:
        super().__init__(number)
        self.how = how

    def info(self) -> Any:
        return {}

    def step(self, action: Any) -> Any:
        if self.steps == 2:
            self.fail()
        return super().step(action)

    def fail(self) -> None:
        if self.how == "with an error of two arguments":
            raise TwoArgumentsError("wheels", "came off")
        if self.how == "with an error that holds a function":
            raise ValueError("wheels came off", lambda: 1)
        if self.how == "by being killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "by waiting":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(10_000)
