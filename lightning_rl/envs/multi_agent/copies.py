"""Independent copies of a single-agent environment as the agents of one environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from lightning_rl.envs.multi_agent.multi_agent_env import MultiAgentEnv, add_all
from lightning_rl.envs.registry import EnvContext

__all__ = ["Copies", "make_multi_agent"]


class Copies(MultiAgentEnv):
    """Agents "agent_0", "agent_1", …, each alone in its own environment.

    An agent whose episode has ended stays out until the episodes of all agents have ended.

    Args:
        envs: one environment for each agent.
    """

    def __init__(self, envs: Sequence[gym.Env[Any, Any]]) -> None:
        self.possible_agents = [f"agent_{index}" for index in range(len(envs))]
        self.envs = dict(zip(self.possible_agents, envs, strict=True))
        self.observation_spaces = {agent: env.observation_space for agent, env in self.envs.items()}
        self.action_spaces = {agent: env.action_space for agent, env in self.envs.items()}
        self.metadata, self.render_mode = dict(envs[0].metadata), envs[0].render_mode
        self._left: set[str] = set()

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin the episodes of all agents; each environment has its own seed."""
        count = len(self.envs)
        seeds = [None] * count if seed is None else np.random.SeedSequence(seed).generate_state(count).tolist()
        given = None if options is None else dict(options)
        obs, infos = {}, {}
        for (agent, env), own in zip(self.envs.items(), seeds, strict=True):
            obs[agent], infos[agent] = env.reset(seed=own, options=given)
        self._left = set(self.envs)
        return obs, infos

    def step(self, actions: dict[str, Any]) -> Any:
        """Step the environments of the agents that act."""
        obs, rewards, terminated, truncated, infos = {}, {}, {}, {}, {}
        for agent, action in actions.items():
            result = self.envs[agent].step(action)
            obs[agent], rewards[agent], terminated[agent], truncated[agent], infos[agent] = result
            if terminated[agent] or truncated[agent]:
                self._left.discard(agent)
        add_all(terminated, truncated, over=not self._left)
        return obs, rewards, terminated, truncated, infos

    def render(self) -> Any:
        """The picture of the first agent's environment."""
        return next(iter(self.envs.values())).render()

    def close(self) -> None:
        """Close all environments."""
        for env in self.envs.values():
            env.close()


def make_multi_agent(env: str | Callable[[EnvContext], gym.Env[Any, Any]]) -> type[MultiAgentEnv]:
    """A class of environments with copies of a single-agent environment as agents, under RLlib's name.

    Args:
        env: a Gymnasium id, or a function that takes an `EnvContext` and returns an environment.

    Returns:
        A class whose argument `config` may hold `num_agents` (default 1); the rest of it goes to the environment.
    """

    class MultiEnv(Copies):
        """Copies of one environment."""

        def __init__(self, config: Mapping[str, Any] | None = None) -> None:
            context = config if isinstance(config, EnvContext) else EnvContext(config)
            keywords = context.copy_with_overrides()
            count = keywords.pop("num_agents", 1)
            creators = [env] * count
            super().__init__([gym.make(e, **keywords) if isinstance(e, str) else e(keywords) for e in creators])

    return MultiEnv
