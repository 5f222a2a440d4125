"""Wrappers of multi-agent environments: rewards, observations, absent agents, the state, and the episode's limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from lightning_rl.envs.multi_agent.multi_agent_env import ALL, MultiAgentEnv

__all__ = ["EpisodeLimit", "MultiAgentWrapper", "blank"]


class MultiAgentWrapper(MultiAgentEnv):
    """Passes everything on to the environment it holds; a subclass changes what it defines.

    Args:
        env: the environment.
    """

    def __init__(self, env: MultiAgentEnv) -> None:
        self.env = env
        self.possible_agents = [*env.possible_agents]
        self.observation_spaces, self.action_spaces = dict(env.observation_spaces), dict(env.action_spaces)
        self.state_space, self.metadata, self.render_mode = env.state_space, env.metadata, env.render_mode

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin an episode."""
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: dict[str, Any]) -> Any:
        """Step the environment."""
        return self.env.step(actions)

    def state(self) -> Any:
        """The environment's state."""
        return self.env.state()

    def render(self) -> Any:
        """As the environment renders."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    @property
    def unwrapped(self) -> Any:
        """The innermost environment."""
        return self.env.unwrapped


class EpisodeLimit(MultiAgentWrapper):
    """Truncates the episode of all agents after a number of steps.

    Args:
        env: the environment.
        max_episode_steps: steps of the environment, ≥ 1; in a turn-based one, each turn is a step.
    """

    def __init__(self, env: MultiAgentEnv, max_episode_steps: int) -> None:
        super().__init__(env)
        self.max_episode_steps, self.steps = max_episode_steps, 0

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin an episode, and count its steps from 0."""
        self.steps = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: dict[str, Any]) -> Any:
        """Step, and truncate at the limit."""
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        self.steps += 1
        if self.steps >= self.max_episode_steps and not terminated.get(ALL):
            truncated = {**truncated, ALL: True}
        return obs, rewards, terminated, truncated, infos


def blank(space: Space[Any]) -> Any:
    """An observation of zeros, or of the values nearest to zero that the space has."""
    if isinstance(space, spaces.Dict):
        return {name: blank(child) for name, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(blank(child) for child in space.spaces)
    if isinstance(space, spaces.Box):
        return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    if isinstance(space, spaces.Discrete):
        return np.int64(np.clip(0, space.start, space.start + space.n - 1))
    if isinstance(space, spaces.MultiDiscrete):
        return np.clip(np.zeros(space.shape, space.dtype), space.start, space.start + space.nvec - 1)
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, space.dtype)
    return space.sample()
