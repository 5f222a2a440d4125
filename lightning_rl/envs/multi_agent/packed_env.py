"""A multi-agent environment as one Gymnasium environment over arrays, which every vector environment can hold."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, create_empty_array

from lightning_rl.envs.action_masks import ActionMasks
from lightning_rl.envs.multi_agent.agent_layout import AgentLayout
from lightning_rl.envs.multi_agent.multi_agent_env import ALL, MultiAgentEnv
from lightning_rl.envs.multi_agent.random_play import agents_without_mask, gives_masks, refuse_masks
from lightning_rl.errors import EnvApiError, short_repr

__all__ = ["AgentFlags", "PackedEnv", "actions_by_agent", "innermost", "is_packed", "plain_actions", "row_of"]

log = logging.getLogger(__name__)

FLAGS = ("acts", "terminated", "truncated", "present")


def is_packed(space: spaces.Space[Any]) -> bool:
    """Whether an observation space is that of a `PackedEnv`."""
    return isinstance(space, spaces.Dict) and {"obs", "rewards", *FLAGS} <= set(space.spaces)


def innermost(env: Any) -> Any:
    """The environment below all wrappers; of a `PackedEnv`, that of the agents."""
    base = env.unwrapped
    return base.env.unwrapped if isinstance(base, PackedEnv) else base


class AgentFlags:
    """Who acts, has ended and is present, of one packed environment or of several together.

    An environment writes into them what it returned; `settle` makes of that what the flags mean, for all environments
    at once.

    Args:
        arrays: "rewards" and `FLAGS`, `[A]` or `[B, A]` each.
        agents: their names.
        name: the name of the environment, for messages.
    """

    def __init__(self, arrays: Mapping[str, Any], agents: Sequence[str], name: str) -> None:
        self.agents, self.name = agents, name
        self.rewards: np.ndarray = arrays["rewards"]
        self.acts, self.terminated, self.truncated, self.shown = (arrays[name].view(np.bool_) for name in FLAGS)
        self.there = np.zeros(self.acts.shape, dtype=bool)  # agents that have appeared and not ended
        self.gone = np.zeros(self.acts.shape, dtype=bool)  # agents that have ended
        self._warned = False

    def begin_episode(self, env: int | None = None) -> None:
        """Before a reset of this environment, or of all: no agent has appeared."""
        self.there[... if env is None else env] = False
        self.gone[... if env is None else env] = False

    def clear(self) -> None:
        """Before a step or a reset: nothing has happened."""
        self.rewards[...] = 0.0
        for flags in (self.acts, self.terminated, self.truncated):
            flags[...] = False

    def settle(self, over: Any, cut: Any) -> None:
        """After a step or a reset, in which `acts` was set for every agent that was given an observation.

        Args:
            over, cut: whether the whole episode terminated, or was truncated; bool, or bool `[B]`.

        Raises:
            EnvApiError: an agent is to act that has ended in this episode.
        """
        ends = self.terminated | self.truncated
        if np.count_nonzero(self.gone):
            self._drop_rewards()
        np.logical_and(self.acts, ~ends, out=self.acts)
        np.logical_or(self.there, self.acts, out=self.shown)
        np.logical_and(self.shown, ~ends, out=self.there)
        if np.any(over) or np.any(cut):
            over, cut = np.asarray(over)[..., None], np.asarray(cut)[..., None]
            self.terminated |= self.there & over
            self.truncated |= self.there & cut & ~over
            goes_on = ~(over | cut)
            self.acts &= goes_on
            self.there &= goes_on
        if np.count_nonzero(back := self.acts & self.gone):
            agent = self.agents[np.argwhere(back)[0, -1]]
            raise EnvApiError(
                f"environment {self.name!r} gives agent {agent!r} an observation to act on after it has ended; it may "
                "come back after the next reset"
            )
        self.gone |= ends

    def _drop_rewards(self) -> None:
        """Drop the rewards of agents that ended in an earlier step: they belong to no action of theirs."""
        late = self.gone & (self.rewards != 0)
        if np.count_nonzero(late):
            self.rewards[late] = 0.0
            if not self._warned:
                self._warned = True
                log.warning(
                    "environment %r gives agent %r a reward after it has ended, which counts neither in its return nor "
                    "in what it learns from: give it in the step in which the agent ends, or let the agent live until "
                    "its last reward (said once)",
                    self.name,
                    self.agents[np.argwhere(late)[0, -1]],
                )


def plain_actions(layout: AgentLayout, actions: Mapping[str, Any]) -> list[Any]:
    """Actions by kind, where those of Discrete spaces are lists of numbers: much faster to take one by one."""
    kinds = enumerate(layout.kinds)
    return [
        np.asarray(actions[str(index)]).tolist()
        if isinstance(kind.action_space, spaces.Discrete)
        else actions[str(index)]
        for index, kind in kinds
    ]


def actions_by_agent(layout: AgentLayout, actions: list[Any], acting: list[bool]) -> dict[str, Any]:
    """The actions of the agents that act, by their names.

    Args:
        layout: the layout of the agents.
        actions: `plain_actions` of one environment.
        acting: whether each agent acts.
    """
    agents, places = layout.agents, layout.places
    found = {}
    for slot, acts in enumerate(acting):
        if acts:
            kind, row = places[slot]
            own = actions[kind]
            found[agents[slot]] = own[row] if type(own) is list else row_of(own, row)
    return found


class PackedEnv(gym.Env[Any, Any]):
    """Writes what the agents of an environment see into arrays, and takes their actions from arrays.

    An observation is a dict: "obs" (kind → its agents' observations `[n, *]`; an agent that is not there keeps its last
    one of the episode, or zeros), "acts" (0 or 1 `[A]`, whose actions the next step takes), "rewards" (float64 `[A]`,
    of the last step), "terminated" and "truncated" (0 or 1 `[A]`, which agents ended in the last step), "present" (0 or
    1 `[A]`, agents that have appeared in this episode and had not ended before the last step: their rows of "obs"
    count), "masks" (kind → 0 or 1 `[n, alternatives]`, for actions that are choices; only if the environment gives
    masks in infos), "state" (only if it has one). `A` counts all agents, `n` those of a kind; kinds are named by their
    index, "0", "1", …. Actions are a dict kind → `[n, *]`.

    At the end of the whole episode, every agent that is still there ends too.

    Args:
        env: the environment.
        name: the name of the environment, for messages.
        check: whether random steps may be taken, to find action masks that the first infos lack.

    Attributes:
        layout: where each agent is in the arrays.
        arrays: the present observation; each step overwrites it.
        infos: the infos of the last reset or step, by agent.

    Raises:
        EnvError: an agent has no space, or the first reset or steps fail.
    """

    def __init__(self, env: MultiAgentEnv, name: str | None = None, check: bool = True) -> None:
        self.env, self.name = env, type(env.unwrapped).__name__ if name is None else name
        self.metadata, self.render_mode = dict(env.metadata), env.render_mode
        masked = gives_masks(env, self.name, check)
        agents = [*env.possible_agents]
        self._maskless = frozenset() if masked else agents_without_mask(env)
        self.layout = AgentLayout.from_spaces(
            agents, env.observation_spaces, env.action_spaces, env.state_space, masked
        )
        self._slots = {agent: slot for slot, agent in enumerate(agents)}
        count, kinds = len(agents), self.layout.kinds
        named = [(str(index), kind, len(kind.slots)) for index, kind in enumerate(kinds)]
        parts: dict[str, spaces.Space[Any]] = {
            "obs": spaces.Dict({key: batch_space(kind.observation_space, n) for key, kind, n in named}),
            "rewards": spaces.Box(-np.inf, np.inf, (count,), np.float64),
            **{name: spaces.MultiBinary(count) for name in FLAGS},
        }
        if masked:
            self._action_masks = {key: ActionMasks(kind.action_space, self.name) for key, kind, _ in named}
            sizes = {key: (n, self._action_masks[key].width) for key, kind, n in named if kind.has_masks}
            parts["masks"] = spaces.Dict({key: spaces.MultiBinary(size) for key, size in sizes.items()})
        if env.state_space is not None:
            parts["state"] = env.state_space
        self.observation_space = spaces.Dict(parts)
        self.action_space = spaces.Dict({key: batch_space(kind.action_space, n) for key, kind, n in named})
        self.infos: dict[str, Any] = {}
        self.bind(create_empty_array(self.observation_space, 1, fn=np.zeros), 0)

    def bind(self, arrays: Any, row: int) -> None:
        """Write observations into row `row` of these batched arrays from now on."""
        self.arrays = row_of(arrays, row)
        self._acts, self._terminated, self._truncated = (self.arrays[name].view(np.bool_) for name in FLAGS[:3])
        self._rewards, self._masks = self.arrays["rewards"], self.arrays.get("masks", {})
        kinds = [self.arrays["obs"][str(index)] for index in range(len(self.layout.kinds))]
        self._obs = [(kinds[kind], row, str(kind)) for kind, row in self.layout.places]
        self._seen = [leaf for part in (*kinds, *self._masks.values()) for leaf in _leaves(part)]
        self.flags = AgentFlags(self.arrays, self.layout.agents, self.name)

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the result is a copy of `arrays`."""
        self.flags.clear()
        self.flags.begin_episode()
        self.write_reset(seed=seed, options=options)
        self.flags.settle(False, False)
        return _copy(self.arrays), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step with the actions of the agents whose turn it is; the observation is a copy of `arrays`."""
        actions = actions_by_agent(self.layout, plain_actions(self.layout, action), self.flags.acts.tolist())
        self.flags.clear()
        terminated, truncated = self.write_step(actions)
        self.flags.settle(terminated, truncated)
        return _copy(self.arrays), float(self.flags.rewards.sum()), terminated, truncated, {}

    def write_reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Begin an episode, and write it into `arrays`; their flags are cleared before and settled afterwards."""
        obs, self.infos = self.env.reset(seed=seed, options=options)
        for leaf in self._seen:
            leaf[...] = 0
        self._write(obs)

    def write_step(self, actions: dict[str, Any]) -> tuple[bool, bool]:
        """Step, and write the result into `arrays`; their flags are cleared before and settled afterwards.

        Args:
            actions: the actions of the agents that act, by name.

        Returns:
            Whether the whole episode terminated, and whether it was truncated.

        Raises:
            EnvApiError: the environment names an agent that is not among its possible agents, gives one an
                observation of another shape than its space has, an action mask that does not fit its actions, or one
                where it gave none at first.
        """
        obs, rewards, terminated, truncated, self.infos = self.env.step(actions)
        for agent, reward in rewards.items():
            self._rewards[self._slot(agent, "rewards")] = reward
        for agent, value in terminated.items():
            if value and agent != ALL:
                self._terminated[self._slot(agent, "terminated")] = True
        for agent, value in truncated.items():
            if value and agent != ALL:
                self._truncated[self._slot(agent, "truncated")] = True
        self._write(obs)
        over = bool(terminated.get(ALL, False))
        return over, bool(truncated.get(ALL, False)) and not over

    def _write(self, obs: Mapping[str, Any]) -> None:
        """Write observations and masks, and who was given one."""
        for agent, value in obs.items():
            slot = self._slot(agent, "obs")
            place, row, kind = self._obs[slot]
            try:
                _put(place, row, value)
            except (ValueError, TypeError, LookupError) as error:
                space = self.layout.kinds[int(kind)].observation_space
                raise EnvApiError(
                    f"environment {self.name!r} gives agent {agent!r} an observation that is not of its space "
                    f"{space}: {error}"
                ) from error
            self._acts[slot] = True
            if kind in self._masks:
                allowed = self._action_masks[kind].find(value, self.infos.get(agent))
                self._masks[kind][row] = True if allowed is None else allowed
        if self.infos and self._maskless:
            refuse_masks(self.name, self.infos, self._maskless)
        if "state" in self.arrays:
            self.arrays["state"][...] = self.env.state()

    def _slot(self, agent: str, where: str) -> int:
        slot = self._slots.get(agent)
        if slot is None:
            raise EnvApiError(
                f"environment {self.name!r} has the agent {short_repr(agent)} in its {where}, and possible_agents does "
                f"not: {short_repr(list(self.layout.agents))}"
            )
        return slot

    def render(self) -> Any:
        """As the environment renders."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def _leaves(arrays: Any) -> list[np.ndarray]:
    if isinstance(arrays, np.ndarray):
        return [arrays]
    return [leaf for part in (arrays.values() if isinstance(arrays, Mapping) else arrays) for leaf in _leaves(part)]


def _copy(arrays: Any) -> Any:
    if isinstance(arrays, Mapping):
        return {name: _copy(child) for name, child in arrays.items()}
    if isinstance(arrays, tuple):
        return tuple(_copy(child) for child in arrays)
    return np.array(arrays)


def _put(target: Any, row: int, value: Any) -> None:
    """Write one agent's (nested) observation into its row."""
    if type(target) is np.ndarray:
        if np.shape(value) != target.shape[1:]:  # assigning it would broadcast it silently
            raise ValueError(f"shape {np.shape(value)} where it has {target.shape[1:]}")
        target[row] = value
    elif isinstance(target, dict):
        for name, child in target.items():
            _put(child, row, value[name])
    else:
        for child, part in zip(target, value, strict=True):
            _put(child, row, part)


def row_of(value: Any, row: int) -> Any:
    """A row of (nested) arrays."""
    if type(value) in (np.ndarray, list):
        return value[row]
    if isinstance(value, Mapping):
        return {name: row_of(child, row) for name, child in value.items()}
    return tuple(row_of(child, row) for child in value)
