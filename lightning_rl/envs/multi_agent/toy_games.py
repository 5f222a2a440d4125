"""Small games for several agents, for presets, examples and tests; learned in seconds to minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from lightning_rl.envs.multi_agent.copies import make_multi_agent
from lightning_rl.envs.multi_agent.multi_agent_env import ALL, MultiAgentEnv

__all__ = [
    "ClimbingGame",
    "MatrixGame",
    "MultiAgentCartPole",
    "PenaltyGame",
    "RockPaperScissors",
    "TwoStepGame",
]

MultiAgentCartPole = make_multi_agent("CartPole-v1")
"""`num_agents` CartPoles; its config may hold keywords of CartPole as well."""


class TwoStepGame(MultiAgentEnv):
    """Two agents choose a matrix game, then play it: 7 for safety, 8 for a joint action that VDN cannot value.

    In the first step the first agent's action decides: 0 leads to a game that pays 7 for any actions, 1 to one that
    pays [[0, 1], [1, 8]]. Rashid et al. 2018, arXiv:1803.11485, section 5. Agents observe the one-hot state, which is
    also the environment's; each receives half of the payoff, so that the return (the sum over agents) is the paper's.
    """

    PAYOFFS = np.array([[[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]])
    """Of the game that the first agent chose: [its choice, action of the first, action of the second]."""

    def __init__(self) -> None:
        self.possible_agents = ["agent_0", "agent_1"]
        self.state_space = spaces.Box(0.0, 1.0, (3,), np.float32)
        self.observation_spaces = dict.fromkeys(self.possible_agents, self.state_space)
        self.action_spaces = {agent: spaces.Discrete(2) for agent in self.possible_agents}
        self._place = 0

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """The first state."""
        self._place = 0
        return self._observations(), {}

    def step(self, actions: dict[str, Any]) -> Any:
        """Choose the game, or play it."""
        first, second = (actions[agent] for agent in self.possible_agents)
        over = self._place > 0
        payoff = self.PAYOFFS[self._place - 1, first, second] if over else 0.0
        self._place = self._place if over else 1 + int(first)
        rewards = {agent: float(payoff) / 2 for agent in self.possible_agents}
        return self._observations(), rewards, {ALL: over}, {ALL: False}, {}

    def state(self) -> np.ndarray:
        """One-hot: the first step, the safe game, the other game."""
        return np.eye(3, dtype=np.float32)[self._place]

    def _observations(self) -> dict[str, np.ndarray]:
        return {agent: self.state() for agent in self.possible_agents}


class MatrixGame(MultiAgentEnv):
    """Two agents play a game in normal form again and again, and observe nothing but the constant 1.

    Args:
        payoffs: `[2, rows, columns]`, of the first and of the second agent for the rows' and the columns' action.
        repetitions: steps of an episode, which is then terminated.
    """

    def __init__(self, payoffs: Sequence[Sequence[Sequence[float]]] | np.ndarray, repetitions: int = 1) -> None:
        self.payoffs, self.repetitions = np.array(payoffs, dtype=np.float64), repetitions
        self.possible_agents = ["agent_0", "agent_1"]
        self.observation_spaces = {agent: spaces.Box(0.0, 1.0, (1,), np.float32) for agent in self.possible_agents}
        _, rows, columns = self.payoffs.shape
        self.action_spaces = {"agent_0": spaces.Discrete(rows), "agent_1": spaces.Discrete(columns)}
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin an episode."""
        self._steps = 0
        return self._observations(), {}

    def step(self, actions: dict[str, Any]) -> Any:
        """Play once."""
        self._steps += 1
        paid = self.payoffs[:, actions["agent_0"], actions["agent_1"]].tolist()
        rewards = dict(zip(self.possible_agents, paid, strict=True))
        return self._observations(), rewards, {ALL: self._steps >= self.repetitions}, {ALL: False}, {}

    def _observations(self) -> dict[str, np.ndarray]:
        return {agent: np.ones(1, np.float32) for agent in self.possible_agents}


class ClimbingGame(MatrixGame):
    """A common payoff whose best joint action lies beside the worst ones: [[11, −30, 0], [−30, 7, 6], [0, 0, 5]].

    Claus & Boutilier 1998. Each agent receives half, so that the return is at most 11 · `repetitions`: 275 with the 25
    of Papoudakis et al. 2021, arXiv:2006.07869.

    Args:
        repetitions: steps of an episode.
    """

    PAYOFF = np.array([[11.0, -30.0, 0.0], [-30.0, 7.0, 6.0], [0.0, 0.0, 5.0]])

    def __init__(self, repetitions: int = 25) -> None:
        super().__init__(np.stack([self.PAYOFF, self.PAYOFF]) / 2, repetitions)


class PenaltyGame(MatrixGame):
    """Two equally good joint actions that must be told apart, and a penalty: [[k, 0, 10], [0, 2, 0], [10, 0, k]].

    Claus & Boutilier 1998. Each agent receives half of the common payoff, so that the return is at most 10 ·
    `repetitions`.

    Args:
        k: the penalty, ≤ 0.
        repetitions: steps of an episode.
    """

    def __init__(self, k: float = -100.0, repetitions: int = 25) -> None:
        payoff = np.array([[k, 0.0, 10.0], [0.0, 2.0, 0.0], [10.0, 0.0, k]])
        super().__init__(np.stack([payoff, payoff]) / 2, repetitions)


class RockPaperScissors(MultiAgentEnv):
    """Both players show rock (0), paper (1) or scissors (2) at once; 1 for the winner, −1 for the loser, 0 for a draw.

    A player observes its own and the other's last choice, one-hot `[6]`; zeros at first.

    Args:
        repetitions: steps of an episode, which is then terminated.
    """

    def __init__(self, repetitions: int = 1) -> None:
        self.repetitions = repetitions
        self.possible_agents = ["player_0", "player_1"]
        self.observation_spaces = {agent: spaces.Box(0.0, 1.0, (6,), np.float32) for agent in self.possible_agents}
        self.action_spaces = {agent: spaces.Discrete(3) for agent in self.possible_agents}
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin an episode."""
        self._steps = 0
        return {agent: np.zeros(6, np.float32) for agent in self.possible_agents}, {}

    def step(self, actions: dict[str, Any]) -> Any:
        """Show once."""
        self._steps += 1
        first, second = (int(actions[agent]) for agent in self.possible_agents)
        won = (0.0, 1.0, -1.0)[(first - second) % 3]
        shown = np.eye(3, dtype=np.float32)
        obs = {
            "player_0": np.concatenate([shown[first], shown[second]]),
            "player_1": np.concatenate([shown[second], shown[first]]),
        }
        over = self._steps >= self.repetitions
        return obs, {"player_0": won, "player_1": -won}, {ALL: over}, {ALL: False}, {}
