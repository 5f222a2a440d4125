"""RLlib's environments with several agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from lightning_rl.envs import multi_agent
from lightning_rl.envs.multi_agent import GroupedAgents, MultiAgentWrapper, as_multi_agent, make_multi_agent
from lightning_rl.envs.multi_agent.agent_layout import flat_size, flatten
from lightning_rl.rllib.env_api import as_current, gymnasium_space

__all__ = ["ENV_STATE", "MultiAgentEnv", "make_multi_agent"]

ENV_STATE = "state"


class MultiAgentEnv(multi_agent.MultiAgentEnv):
    """The base of environments with several agents, whose methods are RLlib's or this package's."""

    def with_agent_groups(
        self,
        groups: Mapping[str, Sequence[Any]],
        obs_space: Space[Any] | None = None,
        act_space: Space[Any] | None = None,
    ) -> multi_agent.MultiAgentEnv:
        """This environment with groups of agents that act as one agent.

        Args:
            groups: name of a group → its agents.
            obs_space, act_space: the spaces of the groups; `None`: made of the members' spaces. If a member observes a
                dict of "obs" and `ENV_STATE`, only algorithms' central parts see the state, such as QMIX's mixing
                network.
        """
        env: Any = as_multi_agent(as_current(self))
        named = {
            group: [f"agent_{agent}" if isinstance(agent, int | np.integer) else agent for agent in members]
            for group, members in groups.items()
        }
        if all(_has_state(space) for space in env.observation_spaces.values()):
            return GroupedAgents(SeparateState(env), named, act_space=act_space and gymnasium_space(act_space))
        return GroupedAgents(
            env, named, obs_space and gymnasium_space(obs_space), act_space and gymnasium_space(act_space)
        )

    def get_agent_ids(self) -> set[Any]:
        """The ids of all agents."""
        return set(as_current(self).possible_agents)

    def observation_space_sample(self, agent_ids: Sequence[Any] | None = None) -> dict[Any, Any]:
        """A random observation of each agent, `None`: of all."""
        return _samples(as_current(self).observation_spaces, agent_ids)

    def action_space_sample(self, agent_ids: Sequence[Any] | None = None) -> dict[Any, Any]:
        """A random action of each agent, `None`: of all."""
        return _samples(as_current(self).action_spaces, agent_ids)

    def observation_space_contains(self, x: Mapping[Any, Any]) -> bool:
        """Whether each agent's observation is in its space."""
        by_agent = as_current(self).observation_spaces
        return all(by_agent[agent].contains(obs) for agent, obs in x.items())

    def action_space_contains(self, x: Mapping[Any, Any]) -> bool:
        """Whether each agent's action is in its space."""
        by_agent = as_current(self).action_spaces
        return all(by_agent[agent].contains(action) for agent, action in x.items())


class SeparateState(MultiAgentWrapper):
    """Takes the environment's state, which every agent observes, out of the observations.

    Args:
        env: whose agents all observe a dict of "obs" and `ENV_STATE`.
    """

    def __init__(self, env: multi_agent.MultiAgentEnv) -> None:
        super().__init__(env)
        self.observation_spaces = {agent: space["obs"] for agent, space in env.observation_spaces.items()}  # type: ignore[index]
        self._space: Any = next(iter(env.observation_spaces.values()))
        self.state_space = spaces.Box(-np.inf, np.inf, (flat_size(self._space[ENV_STATE]),))

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin an episode."""
        obs, infos = self.env.reset(seed=seed, options=options)
        return self._own(obs), infos

    def step(self, actions: dict[str, Any]) -> Any:
        """Step the environment."""
        obs, *rest = self.env.step(actions)
        return self._own(obs), *rest

    def state(self) -> np.ndarray:
        """The state in the last observations."""
        return self._state

    def _own(self, obs: Mapping[str, Any]) -> dict[str, Any]:
        self._state = flatten(self._space[ENV_STATE], next(iter(obs.values()))[ENV_STATE], ())
        return {agent: each["obs"] for agent, each in obs.items()}


def _has_state(space: Space[Any]) -> bool:
    return isinstance(space, spaces.Dict) and set(space.spaces) == {"obs", ENV_STATE}


def _samples(by_agent: Mapping[Any, Space[Any]], agent_ids: Sequence[Any] | None) -> dict[Any, Any]:
    return {agent: by_agent[agent].sample() for agent in (by_agent if agent_ids is None else agent_ids)}
