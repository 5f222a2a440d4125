"""Wrappers of multi-agent environments: rewards, spaces, absent agents, the state, and the episode's limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from lightning_rl.envs.action_masks import ActionMasks
from lightning_rl.envs.multi_agent.agent_layout import flat_size, flatten
from lightning_rl.envs.multi_agent.multi_agent_env import ALL, HoldsEnv, MultiAgentEnv
from lightning_rl.errors import EnvError, did_you_mean

__all__ = [
    "AgentIds",
    "BlackDeath",
    "CentralState",
    "ChangesVectors",
    "CommonReward",
    "EpisodeLimit",
    "MultiAgentWrapper",
    "PadActions",
    "PadObservations",
    "TeamRewards",
    "blank",
    "find_members",
]


class MultiAgentWrapper(HoldsEnv):
    """Passes everything on to the environment it holds; a subclass changes what it defines.

    Args:
        env: the environment.

    Raises:
        EnvError: it has one agent.
    """

    def __init__(self, env: MultiAgentEnv) -> None:
        if not isinstance(env, MultiAgentEnv) and not hasattr(env, "possible_agents"):
            raise EnvError(
                f"{type(self).__name__} wraps environments with several agents, and {type(env.unwrapped).__name__} has "
                "one: leave it out of env.wrappers, or set env.agents=2 to make agents of that many copies"
            )
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


class TeamRewards(MultiAgentWrapper):
    """Gives each agent of a team the sum of the team's rewards; agents without a team keep their own.

    The sum goes to those members that are in the episode, also while they wait.

    Args:
        env: the environment.
        teams: name of a team → its agents, or patterns such as "ally_*".

    Raises:
        EnvError: a pattern fits no agent, or an agent is in two teams.
    """

    def __init__(self, env: MultiAgentEnv, teams: Mapping[str, Sequence[str]]) -> None:
        super().__init__(env)
        self.teams = find_members(env.possible_agents, teams, "team")
        self._there: set[str] = set()

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin an episode."""
        obs, infos = self.env.reset(seed=seed, options=options)
        self._there = set(obs)
        return obs, infos

    def step(self, actions: dict[str, Any]) -> Any:
        """Step, and share the rewards."""
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        self._there |= set(obs)
        shared = dict(rewards)
        for members in self.teams.values():
            total = sum(rewards.get(agent, 0.0) for agent in members)
            shared |= {agent: total for agent in members if agent in self._there}
        self._there -= {agent for part in (terminated, truncated) for agent, value in part.items() if value}
        return obs, shared, terminated, truncated, infos


class CommonReward(TeamRewards):
    """Gives every agent the sum of all rewards, for cooperative algorithms.

    Args:
        env: the environment.
    """

    def __init__(self, env: MultiAgentEnv) -> None:
        super().__init__(env, {"all": ["*"]})


class ChangesVectors(MultiAgentWrapper):
    """Changes the vectors that agents observe, also where a vector is the entry "observation" of a Dict.

    Args:
        env: agents observe vectors, or dicts with a vector "observation".

    Raises:
        EnvError: an agent observes something else.
    """

    def __init__(self, env: MultiAgentEnv) -> None:
        super().__init__(env)
        self.boxes = {agent: self._vector_space(agent) for agent in self.possible_agents}

    def _vector_space(self, agent: str) -> spaces.Box:
        space = self.env.observation_spaces[agent]
        vector = space.spaces.get("observation") if isinstance(space, spaces.Dict) else space
        if not isinstance(vector, spaces.Box) or len(vector.shape) != 1:
            raise EnvError(
                f"agent {agent!r} observes {space}; {type(self).__name__} needs a vector (Box with one dimension), "
                'or a Dict with a vector "observation"'
            )
        return vector

    def change_space(self, agent: str, low: np.ndarray, high: np.ndarray) -> None:
        """Give an agent vectors between these bounds."""
        box = spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
        space = self.env.observation_spaces[agent]
        new = spaces.Dict({**space, "observation": box}) if isinstance(space, spaces.Dict) else box
        self.observation_spaces = {**self.observation_spaces, agent: new}

    def change(self, agent: str, vector: np.ndarray) -> np.ndarray:
        """The vector that the agent observes instead; a subclass defines it."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin an episode."""
        obs, infos = self.env.reset(seed=seed, options=options)
        return {agent: self._changed(agent, value) for agent, value in obs.items()}, infos

    def step(self, actions: dict[str, Any]) -> Any:
        """Step the environment."""
        obs, *others = self.env.step(actions)
        return {agent: self._changed(agent, value) for agent, value in obs.items()}, *others

    def _changed(self, agent: str, obs: Any) -> Any:
        if isinstance(obs, Mapping):
            return {**obs, "observation": self._changed(agent, obs["observation"])}
        return self.change(agent, obs).astype(np.float32)


class PadObservations(ChangesVectors):
    """Fills shorter vectors with zeros up to the longest, so that all agents have one observation space.

    With `PadActions`, agents of different kinds can share a policy, or be members of one group (`policy=qmix`).

    Args:
        env: see `ChangesVectors`.

    Raises:
        EnvError: see there.
    """

    def __init__(self, env: MultiAgentEnv) -> None:
        super().__init__(env)
        size = max(box.shape[0] for box in self.boxes.values())
        self._zeros = {agent: np.zeros(size - box.shape[0], np.float32) for agent, box in self.boxes.items()}
        lows, highs = (
            np.stack([self.change(agent, bounds(box)) for agent, box in self.boxes.items()])
            for bounds in (lambda box: box.low, lambda box: box.high)
        )
        for agent in self.possible_agents:
            self.change_space(agent, lows.min(axis=0), highs.max(axis=0))

    def change(self, agent: str, vector: np.ndarray) -> np.ndarray:
        """The vector, and zeros."""
        return np.concatenate([vector, self._zeros[agent]])


class AgentIds(ChangesVectors):
    """Appends a one-hot vector of the agent to its observation, so that agents that share a policy can differ.

    Args:
        env: see `ChangesVectors`.
        pad: fill shorter vectors with zeros first, as `PadObservations`.

    Raises:
        EnvError: see there.
    """

    def __init__(self, env: MultiAgentEnv, pad: bool = False) -> None:
        super().__init__(PadObservations(env) if pad else env)
        agents = self.possible_agents
        self._ids = dict(zip(agents, np.eye(len(agents), dtype=np.float32), strict=True))
        nothing, one = np.zeros(len(agents)), np.ones(len(agents))
        for agent, box in self.boxes.items():
            self.change_space(agent, np.concatenate([box.low, nothing]), np.concatenate([box.high, one]))

    def change(self, agent: str, vector: np.ndarray) -> np.ndarray:
        """The vector, and the agent's own."""
        return np.concatenate([vector, self._ids[agent]])


class PadActions(MultiAgentWrapper):
    """Gives all agents as many actions as the agent with the most has; masks allow an agent its own only.

    The mask is longer where the environment has one, in the observation or in the info; otherwise it is in the info.

    Args:
        env: its agents have Discrete actions from 0 on.

    Raises:
        EnvError: an agent has other actions.
    """

    def __init__(self, env: MultiAgentEnv) -> None:
        super().__init__(env)
        self._sizes: dict[str, int] = {}
        for agent, space in env.action_spaces.items():
            if not isinstance(space, spaces.Discrete) or space.start != 0:
                raise EnvError(f"agent {agent!r} has the actions {space}; PadActions needs Discrete ones from 0 on")
            self._sizes[agent] = int(space.n)
        name = type(env.unwrapped).__name__
        self._masks = {agent: ActionMasks(space, name) for agent, space in env.action_spaces.items()}
        self._most = max(self._sizes.values())
        self.action_spaces = dict.fromkeys(self.possible_agents, spaces.Discrete(self._most))
        self.observation_spaces = {agent: self._masked(space) for agent, space in env.observation_spaces.items()}

    def _masked(self, space: Space[Any]) -> Space[Any]:
        """The space of an observation with a mask for all actions, if it has a mask."""
        if not isinstance(space, spaces.Dict) or "action_mask" not in space.spaces:
            return space
        return spaces.Dict({**space, "action_mask": spaces.MultiBinary(self._most)})

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin an episode."""
        obs, infos = self.env.reset(seed=seed, options=options)
        return self._with_masks(obs, infos)

    def step(self, actions: dict[str, Any]) -> Any:
        """Step with actions that the agents have."""
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        obs, infos = self._with_masks(obs, infos)
        return obs, rewards, terminated, truncated, infos

    def _with_masks(self, obs: Mapping[str, Any], infos: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        obs, infos = dict(obs), dict(infos)
        for agent, value in obs.items():
            info = infos.get(agent, {})
            inside = isinstance(value, Mapping) and "action_mask" in value
            if inside:
                obs[agent] = {**value, "action_mask": self._longer(agent, value["action_mask"])}
            if not inside or info.get("action_mask") is not None:
                infos[agent] = {**info, "action_mask": self._longer(agent, info.get("action_mask"))}
        return obs, infos

    def _longer(self, agent: str, mask: Any) -> np.ndarray:
        size = self._sizes[agent]
        longer = np.zeros(self._most, np.int8)
        longer[:size] = 1 if mask is None else self._masks[agent].flat(mask)
        return longer


class BlackDeath(MultiAgentWrapper):
    """Keeps agents that have ended, with observations of zeros and rewards of 0, until the whole episode ends.

    Every agent then acts in each step once it has appeared; actions of ended agents are ignored. In their observations
    "action_mask" allows everything. In the last step they are terminated.

    Args:
        env: the environment.
    """

    def __init__(self, env: MultiAgentEnv) -> None:
        super().__init__(env)
        self._blank = {agent: blank(space) for agent, space in env.observation_spaces.items()}
        for value in self._blank.values():
            if isinstance(value, dict) and "action_mask" in value:
                value["action_mask"] = np.ones_like(value["action_mask"])
        self._dead: dict[str, None] = {}

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin an episode."""
        self._dead.clear()
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: dict[str, Any]) -> Any:
        """Step with the actions of the agents that live."""
        own = {agent: action for agent, action in actions.items() if agent not in self._dead}
        obs, rewards, terminated, truncated, infos = self.env.step(own)
        obs, rewards = dict(obs), dict(rewards)
        for agent in self._dead:
            obs[agent], rewards[agent] = self._blank[agent], 0.0
        if terminated[ALL] or truncated[ALL]:
            return obs, rewards, {**terminated, **dict.fromkeys(self._dead, True)}, truncated, infos
        for part in (terminated, truncated):
            self._dead.update(dict.fromkeys(agent for agent, value in part.items() if value))
        obs |= {agent: self._blank[agent] for agent in self._dead}
        none = {ALL: False}
        return obs, rewards, dict(none), dict(none), infos


class CentralState(MultiAgentWrapper):
    """Adds a state: the observations of all agents one after the other, zeros for those that are not there.

    A Discrete observation is one-hot; "action_mask" in a Dict is left out.

    Args:
        env: the environment.
    """

    def __init__(self, env: MultiAgentEnv) -> None:
        super().__init__(env)
        sizes = [flat_size(env.observation_spaces[agent]) for agent in env.possible_agents]
        self._ends = np.cumsum([0, *sizes]).tolist()
        self.state_space = spaces.Box(-np.inf, np.inf, (self._ends[-1],), np.float32)
        self._state = np.zeros(self._ends[-1], np.float32)
        self._gone: set[str] = set()

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin an episode."""
        obs, infos = self.env.reset(seed=seed, options=options)
        self._state = np.zeros_like(self._state)
        self._gone = set()
        self._write(obs)
        return obs, infos

    def step(self, actions: dict[str, Any]) -> Any:
        """Step the environment."""
        result = self.env.step(actions)
        self._state = self._state.copy()
        for agent in self._gone:
            self._part(agent)[:] = 0
        self._write(result[0])
        self._gone = {agent for part in result[2:4] for agent, value in part.items() if value and agent != ALL}
        return result

    def state(self) -> np.ndarray:
        """The joined observations; an agent's final one is in the state of the step in which it ended."""
        return self._state

    def _write(self, obs: Mapping[str, Any]) -> None:
        for agent, value in obs.items():
            self._part(agent)[:] = flatten(self.env.observation_spaces[agent], value, ())

    def _part(self, agent: str) -> np.ndarray:
        slot = self.possible_agents.index(agent)
        return self._state[self._ends[slot] : self._ends[slot + 1]]


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


def find_members(
    agents: Sequence[str], groups: Mapping[str, Sequence[str]], what: str = "group"
) -> dict[str, list[str]]:
    """The agents of each group.

    Args:
        agents: all agents.
        groups: name of a group → names of agents, or patterns such as "ally_*".
        what: what a group is called in messages.

    Raises:
        EnvError: a pattern fits no agent, or an agent is in two groups.
    """
    found: dict[str, list[str]] = {}
    taken: dict[str, str] = {}
    for group, patterns in groups.items():
        members: list[str] = []
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            fitting = [agent for agent in agents if agent == pattern or fnmatchcase(agent, pattern)]
            if not fitting:
                raise EnvError(
                    f"{what} {group!r} names {pattern!r}, which fits no agent of {[*agents]}."
                    f"{did_you_mean(pattern, agents)}"
                )
            members.extend(agent for agent in fitting if agent not in members)
        for agent in members:
            if taken.setdefault(agent, group) != group:
                raise EnvError(f"agent {agent!r} is in the {what}s {taken[agent]!r} and {group!r}; put it in one")
        found[group] = members
    return found
