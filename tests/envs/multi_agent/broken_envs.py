"""Environments that break one promise of the multi-agent API each, and one that keeps all."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from lightning_rl.envs.multi_agent import ALL, MultiAgentEnv


class Fine(MultiAgentEnv):
    """Keeps the API; the others break one promise each."""

    def __init__(self) -> None:
        self.possible_agents = ["a", "b"]
        self.observation_spaces = dict.fromkeys(self.possible_agents, spaces.Box(-1, 1, (2,), np.float32))
        self.action_spaces = {agent: spaces.Discrete(2) for agent in self.possible_agents}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return self.observe(), {}

    def observe(self) -> Any:
        return {agent: np.zeros(2, np.float32) for agent in self.possible_agents}

    def step(self, actions: Any) -> Any:
        self.time += 1
        return self.observe(), dict.fromkeys(actions, 0.0), {ALL: self.time > 4}, {ALL: False}, {}


class NoAgents(Fine):
    def __init__(self) -> None:
        self.observation_spaces = self.action_spaces = {}


class NoSpaces(Fine):
    def __init__(self) -> None:
        super().__init__()
        del self.observation_spaces


class MissingSpace(Fine):
    def __init__(self) -> None:
        super().__init__()
        del self.action_spaces["b"]  # type: ignore[attr-defined]


class Numbered(Fine):
    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = [0, 1]  # type: ignore[list-item]


class OldReset(Fine):
    def reset(self) -> Any:  # type: ignore[override]
        return self.observe()


class OnlyObs(Fine):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.observe()


class Stranger(Fine):
    def observe(self) -> Any:
        return {**super().observe(), "c": np.zeros(2, np.float32)}


class Outside(Fine):
    def observe(self) -> Any:
        return {"a": np.full(2, 3.0, np.float32)}


class Unseeded(Fine):
    def observe(self) -> Any:
        return {"a": np.random.default_rng().uniform(-1, 1, 2).astype(np.float32)}


class OldStep(Fine):
    def step(self, actions: Any) -> Any:
        return super().step(actions)[:4]


class NoAll(Fine):
    def step(self, actions: Any) -> Any:
        obs, rewards, _, truncated, infos = super().step(actions)
        return obs, rewards, {"a": False}, truncated, infos


class NaNReward(Fine):
    def step(self, actions: Any) -> Any:
        obs, _, *others = super().step(actions)
        return obs, {"b": float("nan")}, *others


class BackFromTheDead(Fine):
    def step(self, actions: Any) -> Any:
        obs, rewards, terminated, truncated, infos = super().step(actions)
        return obs, rewards, {**terminated, "a": self.time == 1}, truncated, infos


class ChangingSpaces(Fine):
    def step(self, actions: Any) -> Any:
        self.observation_spaces = dict.fromkeys(self.possible_agents, spaces.Box(-2, 2, (2,), np.float32))
        return super().step(actions)


class NoTurns(Fine):
    def observe(self) -> Any:
        return {}


class WrongState(Fine):
    def __init__(self) -> None:
        super().__init__()
        self.state_space = spaces.Box(0, 1, (3,), np.float32)

    def state(self) -> np.ndarray:
        return np.zeros(2, np.float32)


class Raises(Fine):
    def step(self, actions: Any) -> Any:
        raise ZeroDivisionError("no wheels")
