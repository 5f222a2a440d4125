"""Groups of agents that act as one agent with Tuple spaces, for algorithms that learn a joint value such as QMIX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from gymnasium import Space, spaces

from lightning_rl.envs.action_masks import ActionMasks
from lightning_rl.envs.multi_agent.multi_agent_env import ALL, MultiAgentEnv
from lightning_rl.envs.multi_agent.random_play import agents_without_mask, gives_masks, refuse_masks
from lightning_rl.envs.multi_agent.wrappers import MultiAgentWrapper, blank, find_members
from lightning_rl.errors import EnvError

__all__ = ["GroupedAgents"]


class GroupedAgents(MultiAgentWrapper):
    """Makes each group of agents one agent; agents in no group stay as they are.

    A group observes a dict: "agents" (the members' observations; zeros for one that is absent), "present" (0 or 1 for
    each member: whether its action counts; in an episode's last observation, whether it did not terminate), "state"
    (if the environment has one), "action_masks" (if infos hold masks and all members' actions are Discrete). It acts
    with a tuple of the members' actions whenever a member acts; the actions of absent members are ignored. Its reward
    is the sum, and `infos[group]["group_rewards"]` lists the members'. It ends when all members have ended.

    Args:
        env: the environment.
        groups: name of a group → its agents, or patterns such as "ally_*"; "all": one group "all" of all agents.
        obs_space, act_space: spaces of the groups instead of those above, as in RLlib. With a Tuple `obs_space` a group
            observes the bare tuple of its members' observations, and all members have to be there.
        check: see `PackedEnv`.

    Raises:
        EnvError: a pattern fits no agent; an agent is in two groups; a group has the name of another agent.
    """

    def __init__(
        self,
        env: MultiAgentEnv,
        groups: Mapping[str, Sequence[str]] | Literal["all"],
        obs_space: Space[Any] | None = None,
        act_space: Space[Any] | None = None,
        check: bool = True,
    ) -> None:
        self._name = type(env.unwrapped).__name__
        with_masks = gives_masks(env, self._name, check)
        super().__init__(env)
        self.groups = find_members(env.possible_agents, {"all": ["*"]} if groups == "all" else groups)
        for group, members in self.groups.items():
            if group in env.possible_agents and group not in members:
                raise EnvError(f"group {group!r} has the name of an agent that is not in it: rename the group")
        self._group_of = {agent: group for group, members in self.groups.items() for agent in members}
        self.possible_agents = [*dict.fromkeys(self._group_of.get(agent, agent) for agent in env.possible_agents)]
        self._maskless = frozenset() if with_masks else agents_without_mask(env) & self._group_of.keys()
        self._masked: set[str] = set()
        self._action_masks = {agent: ActionMasks(env.action_spaces[agent], self._name) for agent in self._group_of}
        self._bare = isinstance(obs_space, spaces.Tuple)
        grouped_obs: dict[str, Space[Any]] = {}
        grouped_actions: dict[str, Space[Any]] = {}
        for group, members in self.groups.items():
            observed = [env.observation_spaces[agent] for agent in members]
            acted = [env.action_spaces[agent] for agent in members]
            parts: dict[str, Space[Any]] = {
                "agents": spaces.Tuple(observed),
                "present": spaces.MultiBinary(len(members)),
            }
            if env.state_space is not None:
                parts["state"] = env.state_space
            if with_masks and all(isinstance(space, spaces.Discrete) for space in acted):
                self._masked.add(group)
                sizes = [int(space.n) for space in acted if isinstance(space, spaces.Discrete)]
                parts["action_masks"] = spaces.Tuple([spaces.MultiBinary(size) for size in sizes])
            grouped_obs[group] = spaces.Dict(parts) if obs_space is None else obs_space
            grouped_actions[group] = spaces.Tuple(acted) if act_space is None else act_space
        names = self.possible_agents
        self.observation_spaces = {
            name: grouped_obs[name] if name in grouped_obs else env.observation_spaces[name] for name in names
        }
        self.action_spaces = {
            name: grouped_actions[name] if name in grouped_actions else env.action_spaces[name] for name in names
        }
        self._blank = {agent: blank(env.observation_spaces[agent]) for agent in self._group_of}
        self._acting: set[str] = set()
        self._ended: set[str] = set()

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin an episode."""
        obs, infos = self.env.reset(seed=seed, options=options)
        self._acting, self._ended = set(obs), set()
        found = {agent: value for agent, value in obs.items() if agent not in self._group_of}
        given = {agent: info for agent, info in infos.items() if agent not in self._group_of}
        for group, members in self.groups.items():
            given[group] = self._info(members, {}, infos)
            if any(agent in obs for agent in members):
                found[group] = self._observe(group, obs, infos, set(obs))
        return found, given

    def step(self, actions: dict[str, Any]) -> Any:
        """Step with the actions of those members that act."""
        chosen = {}
        for name, action in actions.items():
            members = self.groups.get(name)
            if members is None:
                chosen[name] = action
                continue
            for agent, own in zip(members, action, strict=True):
                if agent in self._acting:
                    discrete = isinstance(self.env.action_spaces[agent], spaces.Discrete)
                    chosen[agent] = int(own) if discrete else own
        obs, rewards, terminated, truncated, infos = self.env.step(chosen)
        over = terminated.get(ALL, False) or truncated.get(ALL, False)
        ends = {agent for part in (terminated, truncated) for agent, value in part.items() if value and agent != ALL}
        was_ended, self._ended = self._ended, self._ended | ends
        self._acting = set() if over else set(obs) - self._ended
        parts = [
            {agent: value for agent, value in part.items() if agent not in self._group_of}
            for part in (obs, rewards, terminated, truncated, infos)
        ]
        for group, members in self.groups.items():
            gone = was_ended.issuperset(members)
            ended = self._ended.issuperset(members) and not gone
            last = ended or over
            cut = [truncated.get(agent, False) and not terminated.get(agent, False) for agent in members]
            there = {agent for agent in members if agent in obs and not terminated.get(agent, False)} if last else None
            if not gone and (last or not self._acting.isdisjoint(members)):
                parts[0][group] = self._observe(group, obs, infos, self._acting if there is None else there)
            if any(agent in rewards for agent in members):
                parts[1][group] = sum(rewards.get(agent, 0.0) for agent in members)
            if not gone:
                parts[2][group], parts[3][group] = ended and not any(cut), ended and any(cut)
            parts[4][group] = self._info(members, rewards, infos)
        return tuple(parts)

    def _observe(self, group: str, obs: Mapping[str, Any], infos: Mapping[str, Any], present: set[str]) -> Any:
        members = self.groups[group]
        refuse_masks(self._name, infos, self._maskless)
        if self._bare:
            return tuple(obs[agent] for agent in members)
        found: dict[str, Any] = {
            "agents": tuple(obs.get(agent, self._blank[agent]) for agent in members),
            "present": np.array([agent in present for agent in members], dtype=np.int8),
        }
        if self.env.state_space is not None:
            found["state"] = self.env.state()
        if group in self._masked:
            found["action_masks"] = tuple(self._mask(agent, obs, infos) for agent in members)
        return found

    def _mask(self, agent: str, obs: Mapping[str, Any], infos: Mapping[str, Any]) -> np.ndarray:
        masks = self._action_masks[agent]
        allowed = masks.find(obs.get(agent), infos.get(agent))
        return np.ones(masks.width, np.int8) if allowed is None else allowed.astype(np.int8)

    @staticmethod
    def _info(members: Sequence[str], rewards: Mapping[str, Any], infos: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "group_rewards": [rewards.get(agent, 0.0) for agent in members],
            "agents": {agent: infos[agent] for agent in members if agent in infos},
        }
