"""An environment with nested observations and actions."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Nested(gym.Env[Any, Any]):
    """Dict observations, Tuple actions, episodes of two to eight steps."""

    observation_space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)})
    action_space = spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,)), spaces.MultiBinary(2)))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(2, 9))
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return self._observation(), float(action[0]), self.left == 0, False, {}

    def _observation(self) -> Any:
        number = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"a": number, "b": self.np_random.integers(3)}
