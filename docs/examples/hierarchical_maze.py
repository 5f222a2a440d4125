"""Hierarchical training: one policy says where to go, another one walks there, in a maze with wind.

Two agents of one environment take turns. The `manager` sees its place and chooses one of four directions; then the
`walker`, which knows neither its place nor the maze, walks for up to 8 steps and is paid for each in that direction.
It sees open ways and the side of the wind, against which no step succeeds. The manager pays 1 for each step.

Steps to the end, mean of 100 episodes, after 150k env steps: `steps` ≤ 30; before: `untrained steps` ≥ 150, of 200.
"""

import tempfile
from typing import Any

import numpy as np
from gymnasium import spaces

from lightning_rl import Algorithm, MultiAgentEnv

ROWS = ["#########", "#...#...#", "#.#.#.#.#", "#.#...#.#", "#.#####.#", "#.#...#.#", "#...#...#", "#########"]
MAZE, MOVES = np.array([list(row) for row in ROWS]), np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
START, END, SPAN, LIMIT = (1, 1), (5, 7), 8, 200
SETTINGS: dict[str, Any] = {
    "policies": {"manager": {"gamma": 0.99}, "walker": {"gamma": 0.5}},
    "policy_mapping": {name: name for name in ("manager", "walker")},
    "workers": {"envs_per_worker": 16, "fragment_length": 128},
    "evaluation": {"every_env_steps": 0, "episodes": 100, "explore": True},
}


class WindyMaze(MultiAgentEnv):
    """The manager's turn comes after SPAN steps, and where the walker cannot go on in the direction."""

    def __init__(self) -> None:
        self.possible_agents = ["manager", "walker"]
        self.observation_spaces = {"manager": spaces.MultiDiscrete([8, 9]), "walker": spaces.MultiBinary(12)}
        self.action_spaces = {"manager": spaces.Discrete(4), "walker": spaces.Discrete(5)}  # the fifth: wait

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin in the corner; the manager is the first to act."""
        self.rng = np.random.default_rng(seed) if seed is not None else self.rng
        self.place, self.steps, self.left = np.array(START), 0, 0
        return self._observation(), {}

    def step(self, actions: dict[str, Any]) -> Any:
        """The turn of one of them."""
        rewards = {}
        if "manager" in actions:
            self.direction, self.left = int(actions["manager"]), SPAN
        else:
            move, before = int(actions["walker"]), self.place
            if move < 4 and move != self.wind and self._is_open(move):
                self.place = self.place + MOVES[move]
            self.steps, self.left = self.steps + 1, self.left - 1 if self._is_open(self.direction) else 0
            rewards = {"walker": float((self.place - before) @ MOVES[self.direction]), "manager": -1.0}
        self.wind = int(self.rng.integers(4))
        return self._observation(), rewards, {"__all__": tuple(self.place) == END}, {"__all__": self.steps >= LIMIT}, {}

    def _is_open(self, move: int) -> bool:
        return MAZE[tuple(self.place + MOVES[move])] != "#"

    def _observation(self) -> dict[str, Any]:
        if self.left == 0:
            return {"manager": self.place}
        sights = [np.arange(4) == self.direction, [self._is_open(move) for move in range(4)], np.arange(4) == self.wind]
        return {"walker": np.concatenate(sights).astype(np.int8)}


def main(iterations: int = 75, seed: int = 0) -> dict[str, float]:
    """Train both policies, and return the steps that they need before and after it."""
    with tempfile.TemporaryDirectory() as folder:
        algorithm = Algorithm("ppo", WindyMaze, config={**SETTINGS, "seed": seed, "run_dir": folder})
        scores = {"untrained steps": -algorithm.evaluate()["eval/manager/ep_rew_mean"]}
        for _ in range(iterations):
            algorithm.train()
        scores["steps"] = -algorithm.evaluate()["eval/manager/ep_rew_mean"]
        algorithm.stop()
    return scores


if __name__ == "__main__":
    print(main())
