"""The one place that recognizes the forms of environments with several agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from lightning_rl.envs.multi_agent.multi_agent_env import MultiAgentEnv
from lightning_rl.envs.multi_agent.pettingzoo_envs import AECAdapter, ParallelAdapter, is_aec_env, is_parallel_env
from lightning_rl.envs.multi_agent.tuple_env import TupleEnv, is_tuple_env
from lightning_rl.envs.multi_agent.wrappers import MultiAgentWrapper

__all__ = ["as_multi_agent"]

NUMBERS = (int, np.integer)


def as_multi_agent(env: Any) -> MultiAgentEnv | None:
    """An environment of any known form as `MultiAgentEnv`; `None` for one with a single agent.

    Known are `MultiAgentEnv`, RLlib's class of this name (also with `_agent_ids` and one space for all agents or a Dict
    space by agent, its classic attributes), PettingZoo's `ParallelEnv` and `AECEnv`, and Gymnasium
    environments whose two spaces are tuples with a part for each agent and which say how many agents they have. Agents
    that are numbers get names.
    """
    found = _adapt(env)
    agents = getattr(found, "possible_agents", None)
    if found is None or not isinstance(agents, list | tuple) or not any(isinstance(each, NUMBERS) for each in agents):
        return found
    return NamedAgents(found)


def _adapt(env: Any) -> MultiAgentEnv | None:
    if isinstance(env, MultiAgentEnv):
        return env if getattr(env, "possible_agents", None) or not _has_agents_of_rllib(env) else RLlibAdapter(env)
    if is_aec_env(env):
        return AECAdapter(env)
    if is_parallel_env(env):
        return ParallelAdapter(env)
    if is_tuple_env(env):
        return TupleEnv(env)
    return RLlibAdapter(env) if _has_agents_of_rllib(env) else None


class NamedAgents(MultiAgentWrapper):
    """An environment whose agents are numbers, with the names "agent_0", "agent_1" and so on.

    Args:
        env: the environment.
    """

    def __init__(self, env: MultiAgentEnv) -> None:
        self._names = {
            agent: f"agent_{agent}" if isinstance(agent, NUMBERS) else agent for agent in env.possible_agents
        }
        self._numbers = {name: agent for agent, name in self._names.items()}
        super().__init__(env)
        self.possible_agents = [self._names[agent] for agent in env.possible_agents]
        self.observation_spaces = self._named(env.observation_spaces)
        self.action_spaces = self._named(env.action_spaces)

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin an episode."""
        return tuple(map(self._named, self.env.reset(seed=seed, options=options)))

    def step(self, actions: dict[str, Any]) -> Any:
        """Step the environment."""
        return tuple(map(self._named, self.env.step({self._numbers[name]: action for name, action in actions.items()})))

    def _named(self, values: Mapping[Any, Any]) -> dict[str, Any]:
        return {self._names.get(agent) or agent: value for agent, value in values.items()}


class RLlibAdapter(MultiAgentWrapper):
    """An environment with the attributes and methods of `MultiAgentEnv` that is not a subclass of it, such as RLlib's.

    Args:
        env: the environment.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.possible_agents = _agents_of(env)
        self.observation_spaces, self.action_spaces = (
            _spaces_of(env, name, self.possible_agents) for name in ("observation_space", "action_space")
        )
        self.state_space = getattr(env, "state_space", None)
        self.metadata = dict(getattr(env, "metadata", None) or {"render_modes": []})
        self.render_mode = getattr(env, "render_mode", None)

    @property
    def unwrapped(self) -> Any:
        """The environment itself."""
        return self.env


def _has_agents_of_rllib(env: Any) -> bool:
    agents = _agents_of(env)
    found = [_spaces_of(env, name, agents) for name in ("observation_space", "action_space")]
    return bool(agents) and all(found)


def _is_classic(env: Any) -> bool:
    """Whether an environment may name agents and spaces as RLlib's class does; one with one agent may have `agents`."""
    return hasattr(env, "_agent_ids") or any(parent.__name__ == "MultiAgentEnv" for parent in type(env).__mro__)


def _agents_of(env: Any) -> list[Any]:
    """The agents by `possible_agents`, or by the attributes of RLlib's class; none: []."""
    names = ("possible_agents", "_agent_ids", "agents") if _is_classic(env) else ("possible_agents",)
    found = next((agents for name in names if (agents := getattr(env, name, None))), ())
    return sorted(found) if isinstance(found, set | frozenset) else [*found]


def _spaces_of(env: Any, name: str, agents: Sequence[str]) -> dict[str, Space[Any]]:
    """The space of each agent: by `observation_spaces`, or by `observation_space`, a Dict by agent or that of all."""
    by_agent, space = getattr(env, f"{name}s", None), getattr(env, name, None)
    if isinstance(by_agent, Mapping):
        return dict(by_agent)
    if not _is_classic(env):
        return {}
    if isinstance(space, spaces.Dict) and {*agents} <= {*space.spaces}:
        return dict(space.spaces)
    return dict.fromkeys(agents, space) if isinstance(space, Space) else {}
