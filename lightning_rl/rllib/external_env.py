"""Environments of one agent or several that call the policy, in place of being stepped."""

from __future__ import annotations

import math
import queue
import threading
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from lightning_rl.envs.action_masks import ActionMasks
from lightning_rl.envs.multi_agent.multi_agent_env import ALL
from lightning_rl.errors import EnvApiError, EnvError, did_you_mean, short_repr
from lightning_rl.rllib.old_gym import gymnasium_space

__all__ = ["ExternalEnv", "ExternalEpisode", "ExternalMultiAgentEnv", "ExternalStep"]


class ExternalStep(NamedTuple):
    """What an episode has come to when its next action is needed, or when it ends.

    With several agents, `obs`, `rewards`, `done`, `infos` and `logged` are dicts by agent.

    Attributes:
        obs: the observation.
        rewards: the sum since the action before.
        done: whether the episode has ended; with several agents, which of them, and "__all__".
        infos: the latest info.
        logged: the action that the environment takes whatever the policy chooses; `None`: it takes the policy's.
    """

    obs: Any
    rewards: Any
    done: Any
    infos: Any
    logged: Any


@dataclass(slots=True, eq=False)
class ExternalEpisode:
    """An episode that has started and not ended.

    Attributes:
        trains: whether its experience is learned from.
        rewards, done, infos: what the next `ExternalStep` has of these.
        steps: steps that wait for an action.
        actions: actions that wait for `get_action`; an exception is raised by it.
    """

    trains: bool
    rewards: Any = 0.0
    done: Any = False
    infos: Any = field(default_factory=dict)
    steps: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)
    actions: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)


class OpenEpisodes:
    """The episodes of an external environment that have started and not ended, by their ids.

    Args:
        most: how many there may be.

    Attributes:
        started: gets each episode that starts; an `ExternalSampler` puts its own queue here.
        failure: what ended the sampling; `None`: nothing has.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.started: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._by_id: dict[str, ExternalEpisode] = {}
        self._lock = threading.Lock()
        self.failure: Exception | None = None

    def start(self, episode_id: str, episode: ExternalEpisode) -> None:
        """Add an episode.

        Raises:
            ValueError: see `ExternalEnv.start_episode`.
        """
        with self._lock:
            if self.failure is not None:
                raise self.failure
            if episode_id in self._by_id:
                raise ValueError(f"episode {episode_id!r} is open already: end it, or start one of another id")
            if len(self._by_id) >= self.most:
                raise ValueError(
                    f"{len(self._by_id)} episodes are open: call end_episode for those that are over, or give "
                    "ExternalEnv a larger max_concurrent"
                )
            self._by_id[episode_id] = episode
        self.started.put(episode)

    def __getitem__(self, episode_id: str) -> ExternalEpisode:
        with self._lock:
            if episode_id not in self._by_id:
                raise ValueError(f"no episode {episode_id!r} is open: it has ended, or start_episode was not called")
            return self._by_id[episode_id]

    def end(self, episode_id: str) -> None:
        """Remove an episode."""
        with self._lock:
            del self._by_id[episode_id]

    def count(self, trains: bool) -> int:
        """How many there are of this kind."""
        with self._lock:
            return sum(episode.trains == trains for episode in self._by_id.values())

    def fail(self, error: Exception) -> None:
        """Raise an error wherever an action is waited for, and when an episode is started."""
        with self._lock:
            self.failure = error
            for episode in self._by_id.values():
                episode.actions.put(error)


class ExternalEnv(threading.Thread):
    """An environment with a loop of its own, which asks the policy for actions.

    A subclass defines `run`, which a thread calls once training begins: it starts episodes, gets actions for its
    observations, or logs actions that something else chose, and logs rewards. Several episodes may be open at a time,
    also in several threads. `get_action` waits while the policy learns.

    Args:
        action_space, observation_space: the spaces of one environment.
        max_concurrent: the most episodes that may be open at a time.

    Attributes:
        served: the open episodes.
    """

    def __init__(self, action_space: Any, observation_space: Any, max_concurrent: int = 100) -> None:
        super().__init__(daemon=True)
        self.action_space, self.observation_space = action_space, observation_space
        self.served = OpenEpisodes(max_concurrent)

    def run(self) -> None:
        """The loop of the environment."""
        raise NotImplementedError(f"{type(self).__name__} must define run()")

    def start_episode(self, episode_id: str | None = None, training_enabled: bool = True) -> str:
        """Start an episode.

        Args:
            episode_id: a new id; `None`: one is made.
            training_enabled: whether its experience is learned from.

        Returns:
            The id.

        Raises:
            ValueError: an episode of that id is open, or `max_concurrent` are.
        """
        episode_id = uuid.uuid4().hex if episode_id is None else episode_id
        self.served.start(episode_id, self._new_episode(training_enabled))
        return episode_id

    def get_action(self, episode_id: str, observation: Any) -> Any:
        """The policy's action for an observation; with several agents, those of the agents that observe, by agent.

        Raises:
            ValueError: no such episode is open.
            EnvApiError: the observation does not fit the space, or allows no action.
        """
        return self._ask(episode_id, observation, None)

    def log_action(self, episode_id: str, observation: Any, action: Any) -> None:
        """Record an action that something else than the policy chose.

        Its recorded log-probability is that of the policy, as how it was chosen is not known.

        Raises:
            ValueError: no such episode is open.
            EnvApiError: the observation or the action does not fit its space.
        """
        self._ask(episode_id, observation, self._in_space(self.action_space, action, "action"))

    def log_returns(self, episode_id: str, reward: Any, info: Any = None) -> None:
        """Add to the reward of the latest action.

        Args:
            episode_id: an open episode.
            reward: is added to those since the action.
            info: the environment's, which callbacks see; with "TimeLimit.truncated" true, an end is a truncation.

        Raises:
            ValueError: no such episode is open, or the reward is not finite.
        """
        episode = self.served[episode_id]
        episode.rewards += finite(reward)
        if info:
            episode.infos = dict(info)

    def end_episode(self, episode_id: str, observation: Any) -> None:
        """End an episode.

        Args:
            episode_id: an open episode.
            observation: the last one.

        Raises:
            ValueError: no such episode is open.
            EnvApiError: the observation does not fit the space.
        """
        episode, obs = self.served[episode_id], self._in_space(self.observation_space, observation, "observation")
        episode.done = self._all_done(episode)
        self.served.end(episode_id)
        self._send(episode, obs, None)

    def _new_episode(self, trains: bool) -> ExternalEpisode:
        return ExternalEpisode(trains)

    def _all_done(self, episode: ExternalEpisode) -> Any:
        return True

    def _ask(self, episode_id: str, observation: Any, logged: Any) -> Any:
        episode, obs = self.served[episode_id], self._in_space(self.observation_space, observation, "observation")
        self._check_masks(obs, episode.infos)
        self._send(episode, obs, logged)
        action = episode.actions.get()
        if isinstance(action, Exception):
            raise EnvError(f"{type(self).__name__} has no policy any more: {action}") from action
        return action

    def _send(self, episode: ExternalEpisode, obs: Any, logged: Any) -> None:
        step = ExternalStep(obs, episode.rewards, episode.done, episode.infos, logged)
        fresh = self._new_episode(episode.trains)
        episode.rewards, episode.infos = fresh.rewards, fresh.infos
        episode.steps.put(step)

    def _in_space(self, space: Any, value: Any, what: str) -> Any:
        return as_space(gymnasium_space(space), value, what)

    def _check_masks(self, obs: Any, infos: Any) -> None:
        self._check_mask(self.action_space, obs, infos, "the observation")

    def _check_mask(self, action_space: Any, obs: Any, info: Any, where: str) -> None:
        """Refuse a mask that allows no action, before the worker that acts for all would fail on it."""
        masks = ActionMasks(gymnasium_space(action_space), type(self).__name__)
        mask = masks.find(obs, info)
        if mask is not None and masks.forbid_all(mask[None]).any():
            raise masks.refuse(mask, where)


class ExternalMultiAgentEnv(ExternalEnv):
    """As `ExternalEnv`, with observations, actions, rewards and infos that are dicts by agent.

    Args:
        action_space, observation_space: agent → its space, or a Dict space, of all agents that may ever appear.
        max_concurrent: see `ExternalEnv`.

    Raises:
        EnvError: the spaces are not dicts with the same agents.
    """

    def __init__(self, action_space: Any, observation_space: Any, max_concurrent: int = 100) -> None:
        by_agent = [getattr(space, "spaces", space) for space in (action_space, observation_space)]
        if not all(isinstance(space, Mapping) for space in by_agent) or set(by_agent[0]) != set(by_agent[1]):
            raise EnvError(
                f"ExternalMultiAgentEnv has the spaces {action_space} and {observation_space}; expected dicts of the "
                "same agents, agent → space"
            )
        super().__init__(dict(by_agent[0]), dict(by_agent[1]), max_concurrent)

    def log_returns(
        self,
        episode_id: str,
        reward: Mapping[Any, float],
        info: Mapping[Any, Any] | None = None,
        multiagent_done_dict: Mapping[Any, bool] | None = None,
    ) -> None:
        """Add to the rewards of the agents' latest actions.

        Args:
            episode_id: an open episode.
            reward: agent → what is added.
            info: agent → info.
            multiagent_done_dict: which agents have ended.

        Raises:
            ValueError: no such episode is open, or a reward is not finite.
            EnvApiError: there is no such agent.
        """
        episode = self.served[episode_id]
        for given in (reward, multiagent_done_dict or {}):
            self._check_agents([agent for agent in given if agent != ALL], "what is logged")
        gains = {agent: finite(gain) for agent, gain in reward.items()}
        for agent, gain in gains.items():
            episode.rewards[agent] = episode.rewards.get(agent, 0.0) + gain
        episode.infos |= info or {}
        episode.done |= multiagent_done_dict or {}

    def _new_episode(self, trains: bool) -> ExternalEpisode:
        return ExternalEpisode(trains, rewards={}, done={ALL: False})

    def _all_done(self, episode: ExternalEpisode) -> Any:
        return {**dict.fromkeys(self.observation_space, True), ALL: True}

    def _in_space(self, space: Any, value: Any, what: str) -> Any:
        self._check_agents(value, what)
        return {
            agent: as_space(gymnasium_space(space[agent]), each, f"{what} of agent {agent!r}")
            for agent, each in value.items()
        }

    def _check_masks(self, obs: Any, infos: Any) -> None:
        for agent, each in obs.items():
            self._check_mask(self.action_space[agent], each, infos.get(agent), f"agent {agent!r}")

    def _check_agents(self, agents: Iterable[Any], what: str) -> None:
        known = self.observation_space
        if unknown := [agent for agent in agents if agent not in known]:
            raise EnvApiError(f"{what} of agent {unknown[0]!r}: no such agent.{did_you_mean(str(unknown[0]), known)}")


def finite(reward: Any) -> float:
    """A reward.

    Raises:
        ValueError: it is NaN or infinite.
    """
    if not math.isfinite(value := float(reward)):
        raise ValueError(f"reward {value}; expected a finite number")
    return value


def as_space(space: Any, value: Any, what: str) -> Any:
    """A value as the arrays of a space.

    Raises:
        EnvApiError: it has another form; names `what`.
    """
    if isinstance(space, spaces.Box):
        given = np.asarray(value)
        fits, shape = given.shape == space.shape and castable(given, space.dtype), f" of {given.dtype} {given.shape}"
        value = given.astype(space.dtype) if fits else value
        fits = fits and bool(np.isfinite(value).all())
    elif isinstance(space, spaces.Dict) and isinstance(value, Mapping) and set(value) == set(space.spaces):
        return {name: as_space(child, value[name], f"{what}[{name!r}]") for name, child in space.items()}
    elif isinstance(space, spaces.Tuple) and isinstance(value, list | tuple) and len(value) == len(space):
        parts = zip(space, value, strict=True)
        return tuple(as_space(child, part, f"{what}[{index}]") for index, (child, part) in enumerate(parts))
    else:
        fits, shape = space.contains(value), ""
    if not fits:
        raise EnvApiError(f"{what} {short_repr(value)}{shape} does not fit the space {space}: send one that does")
    return value


def castable(array: np.ndarray, dtype: Any) -> bool:
    """Whether a cast keeps the kind of the numbers, and integers as they are."""
    if np.issubdtype(dtype, np.integer) and np.issubdtype(array.dtype, np.integer):
        return bool((array.astype(dtype) == array).all())
    return np.can_cast(array.dtype, dtype, "same_kind")
