"""Small games of two agents with one reward, in which learning a joint value can be told from learning alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from lightning_rl.envs.multi_agent.multi_agent_env import ALL, MultiAgentEnv
from lightning_rl.errors import ConfigError

__all__ = ["MatrixGame", "TwoStepGame"]

GAMES = {
    "climbing": ((11, -30, 0), (-30, 7, 6), (0, 0, 5)),
    "penalty": ((-100, 0, 10), (0, 2, 0), (10, 0, -100)),
}


class MatrixGame(MultiAgentEnv):
    """Two agents play the same matrix `length` times; each gets half of the payoff, and sees nothing.

    Claus and Boutilier 1998, "The dynamics of reinforcement learning in cooperative multiagent systems", AAAI.

    Args:
        payoffs: "climbing", "penalty" (with k = −100), or rows of a matrix: the first agent chooses the row.
        length: steps of an episode, ≥ 1.

    Raises:
        ConfigError: there is no such game, or the payoffs are no matrix.
    """

    def __init__(self, payoffs: str | Sequence[Sequence[float]] = "climbing", length: int = 25) -> None:
        if isinstance(payoffs, str) and payoffs not in GAMES:
            raise ConfigError(f"payoffs={payoffs!r} names no game; one of {', '.join(GAMES)}, or the rows of a matrix")
        self.payoffs = np.asarray(GAMES[payoffs] if isinstance(payoffs, str) else payoffs, dtype=np.float64)
        if self.payoffs.ndim != 2 or length < 1:
            raise ConfigError(f"payoffs={payoffs!r}, length={length}; expected rows of equal length, and at least 1")
        self.length = length
        self.possible_agents = ["row", "column"]
        self.observation_spaces = {agent: spaces.Box(0.0, 1.0, (1,)) for agent in self.possible_agents}
        pairs = zip(self.possible_agents, self.payoffs.shape, strict=True)
        self.action_spaces = {agent: spaces.Discrete(count) for agent, count in pairs}
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin an episode."""
        self.steps = 0
        return self._observe(), {}

    def step(self, actions: dict[str, Any]) -> Any:
        """Pay half of the entry to each agent."""
        self.steps += 1
        half = float(self.payoffs[actions["row"], actions["column"]]) / 2
        over = self.steps == self.length
        ends = {**dict.fromkeys(self.possible_agents, over), ALL: over}
        return self._observe(), dict.fromkeys(self.possible_agents, half), ends, dict.fromkeys(ends, False), {}

    def _observe(self) -> dict[str, np.ndarray]:
        return {agent: np.ones(1, np.float32) for agent in self.possible_agents}


class TwoStepGame(MultiAgentEnv):
    """The first agent's action chooses the matrix that both agents then play; each gets half of the payoff.

    Rashid et al. 2018, arXiv:1803.11485, section 6.1. Matrix A pays 7 for any actions; B pays 8 if both agents choose
    action 1, 1 if one does, else 0. Both see the state as a one-hot vector. The sum of two functions of the agents'
    actions cannot tell that B is worth 8.
    """

    PAYOFFS = np.array([[[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]])

    def __init__(self) -> None:
        self.possible_agents = ["first", "second"]
        self.observation_spaces = {agent: spaces.Box(0.0, 1.0, (3,)) for agent in self.possible_agents}
        self.action_spaces = {agent: spaces.Discrete(2) for agent in self.possible_agents}
        self.state_space = spaces.Box(0.0, 1.0, (3,))
        self.matrix: int | None = None

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin an episode."""
        self.matrix = None
        return self._observe(), {}

    def step(self, actions: dict[str, Any]) -> Any:
        """Choose the matrix, then play it."""
        over, half = self.matrix is not None, 0.0
        if self.matrix is None:
            self.matrix = int(actions["first"])
        else:
            half = float(self.PAYOFFS[self.matrix, actions["first"], actions["second"]]) / 2
        ends = {**dict.fromkeys(self.possible_agents, over), ALL: over}
        return self._observe(), dict.fromkeys(self.possible_agents, half), ends, dict.fromkeys(ends, False), {}

    def state(self) -> np.ndarray:
        """Which of the three states the game is in, one-hot."""
        return np.eye(3, dtype=np.float32)[0 if self.matrix is None else self.matrix + 1]

    def _observe(self) -> dict[str, np.ndarray]:
        return {agent: self.state() for agent in self.possible_agents}
