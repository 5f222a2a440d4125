"""An environment whose agents act by a script, so that a test can predict every observation, reward and end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from lightning_rl.envs.multi_agent.multi_agent_env import ALL, MultiAgentEnv


class ScriptedTurns(MultiAgentEnv):
    """Follows a script that says which agents act in which step.

    An agent observes [steps taken, its slot]. In step t (from 0) the agent in slot s receives t + 1 + 100 · s if it is
    in the episode, whether it acts or waits.

    Args:
        turns: for each step, the agents that act; an agent appears with its first turn.
        ends: agent → the step in which it ends, always with a final observation; its turns must be over by then.
        truncate: agents and the episode are truncated, not terminated.
        rewards: for each step, agent → reward, instead of the above.
    """

    def __init__(
        self,
        turns: Sequence[Sequence[str]] = (("a",), ("b",), ("a",), ("b",)),
        ends: Mapping[str, int] | None = None,
        truncate: bool = False,
        rewards: Sequence[Mapping[str, float]] | None = None,
    ) -> None:
        self.turns, self.ends, self.truncate, self.rewards = turns, dict(ends or {}), truncate, rewards
        self.possible_agents = sorted({agent for step in turns for agent in step})
        box = spaces.Box(0.0, np.inf, (2,), np.float32)
        self.observation_spaces = dict.fromkeys(self.possible_agents, box)
        self.action_spaces = {agent: spaces.Discrete(2) for agent in self.possible_agents}
        self.actions: list[dict[str, Any]] = []
        """The actions of each step of the episode."""

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin the script."""
        self.actions = []
        return self._observations(self.turns[0]), {}

    def step(self, actions: dict[str, Any]) -> Any:
        """Take the actions of the agents whose turn it is."""
        time = len(self.actions)
        self.actions.append(dict(actions))
        over = time + 1 == len(self.turns)
        there = [agent for agent in self.possible_agents if self._is_there(agent, time)]
        slots = {agent: self.possible_agents.index(agent) for agent in there}
        rewards = {agent: time + 1.0 + 100.0 * slot for agent, slot in slots.items()}
        ended = {agent: True for agent in there if self.ends.get(agent) == time}
        seen = there if over else [*self.turns[time + 1], *ended]
        ends, none = {**ended, ALL: over}, {ALL: False}
        return (
            self._observations(seen),
            rewards if self.rewards is None else dict(self.rewards[time]),
            none if self.truncate else ends,
            ends if self.truncate else none,
            {},
        )

    def _is_there(self, agent: str, time: int) -> bool:
        """Whether the agent has appeared before the end of step `time`, and had not ended before it."""
        return any(agent in step for step in self.turns[: time + 1]) and self.ends.get(agent, time) >= time

    def _observations(self, agents: Sequence[str]) -> dict[str, np.ndarray]:
        time = len(self.actions)
        return {agent: np.array([time, self.possible_agents.index(agent)], np.float32) for agent in agents}
