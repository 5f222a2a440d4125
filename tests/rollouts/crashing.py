"""CartPole whose steps fail now and then, in every way in which an environment can."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

HELD: list[Any] = []  # memory that outlives the environment which took it
CHANCE = random.SystemRandom()  # not seeded: a fragment that is computed again does not fail again


def fail(how: str) -> float:
    """Do it; returns the reward of the step where the process still lives."""
    if how == "raise":
        raise ArithmeticError("wheels came off")
    if how == "nan":
        return float("nan")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        os._exit(3)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "hang":
        time.sleep(10_000)
    if how == "hang in C":
        ctypes.CDLL(None).pause()
    if how == "oom":
        allocate_all()
    raise ValueError(f"how={how!r}")


def allocate_all() -> None:
    """Take memory up to a limit of this process's own, and keep it."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 200 * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    while True:
        HELD.append(np.ones(2**20))


class CrashingCartPole(gym.Wrapper[Any, Any, Any, Any]):
    """CartPole.

    Args:
        how: "raise", "nan", "kill", "exit", "segfault", "hang", "hang in C", "oom"; or several, of which one at random.
        chance: of failing, each step.
        at: fails in this step of its life, counted from 1, and only once: in the process that creates the file `once`
            (`None`: in every life).
        once: a file; it must not exist before.
        leak_mb: MiB that each step takes and keeps.
    """

    def __init__(
        self,
        how: str | list[str] = "raise",
        chance: float = 0.0,
        at: int | None = None,
        once: str | None = None,
        leak_mb: float = 0.0,
    ) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.how = [how] if isinstance(how, str) else list(how)
        self.chance, self.at, self.once, self.leak_mb = chance, at, once, leak_mb
        self.steps = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        if self.leak_mb:
            HELD.append(np.ones(int(self.leak_mb * 2**17)))
        if self._fails():
            reward = fail(CHANCE.choice(self.how))
        return obs, float(reward), terminated, truncated, info

    def _fails(self) -> bool:
        if self.at is None:
            return CHANCE.random() < self.chance
        if self.steps != self.at:
            return False
        if self.once is None:
            return True
        try:
            Path(self.once).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True
