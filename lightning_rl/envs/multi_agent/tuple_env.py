"""Gymnasium environments whose spaces are tuples with a part for each agent, as `MultiAgentEnv`.

Level-based foraging (Papoudakis et al. 2021, arXiv:2006.07869) and the multi-robot warehouse have this form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from lightning_rl.envs.multi_agent.multi_agent_env import ALL, HoldsEnv, add_all

__all__ = ["TupleEnv", "is_tuple_env"]

COUNTS = ("n_agents", "num_agents", "players")
MASKS = ("action_mask", "action_masks", "avail_actions")


def is_tuple_env(env: Any) -> bool:
    """Whether both spaces are tuples, and the environment says that it has as many agents."""
    pair = [getattr(env, name, None) for name in ("observation_space", "action_space")]
    if not isinstance(env, gym.Env) or not all(isinstance(space, spaces.Tuple) for space in pair):
        return False
    found = [getattr(env.unwrapped, name, None) for name in COUNTS]
    counts = [len(value) if isinstance(value, Sequence) else value for value in found]
    sizes = {len(space) for space in pair}  # type: ignore[arg-type]
    return len(sizes) == 1 and not sizes.isdisjoint(count for count in counts if isinstance(count, int))


def _has_parts(value: Any, count: int) -> bool:
    return isinstance(value, Sequence | np.ndarray) and len(value) == count


class TupleEnv(HoldsEnv):
    """Agents "agent_0", "agent_1", … of an environment with tuples of observations, actions and rewards.

    All agents act in each step. A single reward is of each of them; a single `terminated` or `truncated` is of all.

    Args:
        env: the environment; its info may hold a mask for each agent under "action_mask".
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.env = env
        observed: Any = env.observation_space
        acted: Any = env.action_space
        self.possible_agents = [f"agent_{index}" for index in range(len(acted))]
        self.observation_spaces = dict(zip(self.possible_agents, observed, strict=True))
        self.action_spaces = dict(zip(self.possible_agents, acted, strict=True))
        self.metadata, self.render_mode = dict(env.metadata), env.render_mode
        for space in acted.spaces:
            space.seed(0)
        self._unused = [space.sample() for space in acted]  # for agents that have ended before the others
        self._ended: set[str] = set()
        # Level-based foraging keeps its players where they stood, and starts none of them there: two resets with one
        # seed would differ.
        players = getattr(env.unwrapped, "players", ())
        self._players = [player for player in players if hasattr(player, "position")] if players else []

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin an episode."""
        for player in self._players:
            player.position = None
        obs, info = self.env.reset(seed=seed, options=None if options is None else dict(options))
        self._ended.clear()
        return dict(zip(self.possible_agents, obs, strict=True)), self._infos(info)

    def step(self, actions: dict[str, Any]) -> Any:
        """Step all agents."""
        agents = self.possible_agents
        chosen = tuple(actions.get(agent, unused) for agent, unused in zip(agents, self._unused, strict=True))
        result: Any = self.env.step(chosen)
        obs, rewards, terminated, truncated, info = result
        terminated, truncated = self._flags(terminated), self._flags(truncated)
        each = [float(reward) for reward in rewards] if isinstance(rewards, list | tuple) else self._spread(rewards)
        rewards = dict(zip(agents, each, strict=True))
        if not (self._ended or any(terminated.values()) or any(truncated.values())):  # the usual case
            terminated[ALL] = truncated[ALL] = False
            return dict(zip(agents, obs, strict=True)), rewards, terminated, truncated, self._infos(info)
        there = [agent for agent in agents if agent not in self._ended]
        self._ended.update(agent for agent in there if terminated[agent] or truncated[agent])
        over = len(self._ended) == len(agents)
        parts = (
            dict(zip(agents, obs, strict=True)),
            rewards,
            terminated,
            truncated,
            self._infos(info),
        )
        obs, rewards, terminated, truncated, infos = (
            {agent: part[agent] for agent in there if agent in part} for part in parts
        )
        add_all(terminated, truncated, over)
        return obs, rewards, terminated, truncated, infos

    def _flags(self, value: Any) -> dict[str, bool]:
        if isinstance(value, bool | np.bool_):  # of all agents
            return dict.fromkeys(self.possible_agents, bool(value))
        return {agent: bool(flag) for agent, flag in zip(self.possible_agents, self._spread(value), strict=True)}

    def _spread(self, value: Any) -> list[Any]:
        """A value for each agent; one number is that of all."""
        return np.broadcast_to(value, len(self.possible_agents)).tolist()

    def _infos(self, info: Mapping[str, Any] | None) -> dict[str, Any]:
        """The environment's info for each agent, each with its own mask."""
        count = len(self.possible_agents)
        if not info:
            return {}
        masks = next((given for name in MASKS if _has_parts(given := info.get(name), count)), None)
        infos: dict[str, Any] = {agent: dict(info) for agent in self.possible_agents}
        if masks is not None:
            for agent, mask in zip(self.possible_agents, masks, strict=True):
                infos[agent]["action_mask"] = np.asarray(mask)
        return infos
