"""Small games of two players as one agent with Tuple spaces, as groups of agents are."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

__all__ = ["Beam", "Cues"]


class Beam(gym.Env[Any, Any]):
    """Two players lift the ends of a beam to a goal and keep it level; each sees its own end and the goal.

    The reward of a step is −Σ (height − goal)² − 4 (difference of the heights)²; episodes have 10 steps. From heights
    and goals in [−1, 1] and with speeds up to 0.5, the best return is about −2, and that of random actions about −40.
    """

    def __init__(self) -> None:
        one = spaces.Box(-2.0, 2.0, (2,), np.float32)
        self.observation_space = spaces.Dict({"agents": spaces.Tuple([one, one])})
        self.action_space = spaces.Tuple([spaces.Box(-0.5, 0.5, (1,), np.float32)] * 2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.heights, self.goal, self.steps = self.np_random.uniform(-1, 1, 2), self.np_random.uniform(-1, 1), 0
        return self.look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.heights = np.clip(self.heights + np.concatenate(action), -2.0, 2.0)
        self.steps += 1
        tilt = self.heights[0] - self.heights[1]
        reward = -float(np.square(self.heights - self.goal).sum() + 4.0 * tilt**2)
        return self.look(), reward, False, self.steps == 10, {}

    def look(self) -> Any:
        return {"agents": tuple(np.array([height, self.goal], np.float32) for height in self.heights)}


class Cues(gym.Env[Any, Any]):
    """Each of two players sees a cue of its own and names it; the reward is 1 if both are right.

    The second player has one more action, which a mask forbids; taking it is an error. Episodes have 5 steps; random
    play gives 5 / 9.
    """

    def __init__(self) -> None:
        cue, masks = spaces.Discrete(3), spaces.Tuple([spaces.MultiBinary(3), spaces.MultiBinary(4)])
        members = spaces.Tuple([cue, spaces.Box(0.0, 1.0, (3,), np.float32)])
        self.observation_space = spaces.Dict(
            {"agents": members, "present": spaces.MultiBinary(2), "action_masks": masks}
        )
        self.action_space = spaces.Tuple([spaces.Discrete(3), spaces.Discrete(4)])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action[1] == 3:
            raise ValueError("the mask forbids action 3")
        self.steps += 1
        reward = float(tuple(action) == tuple(self.cues))
        return self.look(), reward, self.steps == 5, False, {}

    def look(self) -> Any:
        self.cues = self.np_random.integers(3, size=2)
        return {
            "agents": (np.int64(self.cues[0]), np.eye(3, dtype=np.float32)[self.cues[1]]),
            "present": np.ones(2, np.int8),
            "action_masks": (np.ones(3, np.int8), np.array([1, 1, 1, 0], np.int8)),
        }
