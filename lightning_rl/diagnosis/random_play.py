"""Plays an environment with random allowed actions and records what it gives, for one agent and for several."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from lightning_rl.envs.check import check_obs, check_scalars, equal, sample_allowed_action
from lightning_rl.envs.multi_agent import ALL, MultiAgentEnv
from lightning_rl.envs.multi_agent.packed_env import PackedEnv
from lightning_rl.process_memory import resident_mb
from lightning_rl.spaces import leaf_spaces, leaf_values

__all__ = ["Played", "RandomPlayer", "Spaces", "first_difference", "play", "spaces_by_agent", "trajectory"]

Spaces = Mapping[str, tuple[gym.Space[Any], gym.Space[Any]]]
ONE = ""  # the name of the agent of a single-agent environment


def spaces_by_agent(env: gym.Env[Any, Any]) -> Spaces:
    """Agent → (observation space, action space); the only agent of a single-agent environment is ""."""
    if isinstance(env, PackedEnv):
        inner = env.env
        return {agent: (inner.observation_spaces[agent], inner.action_spaces[agent]) for agent in inner.possible_agents}
    return {ONE: (env.observation_space, env.action_space)}


class RandomPlayer:
    """Steps an environment that `EnvCreator.make_single` made, with the same calls for one agent and for several.

    Args:
        env: the environment.
        name: for messages.
        seed: of the actions.

    Attributes:
        obs: agent → its latest observation; only of agents that have one.
        masked: whether an observation or an info held an action mask.
    """

    def __init__(self, env: gym.Env[Any, Any], name: str, seed: int = 0) -> None:
        self.env: Any = env.env if isinstance(env, PackedEnv) else env
        self.several = isinstance(self.env, MultiAgentEnv)
        # Copies: some environments seed their own action space in each reset, and actions shall not depend on it.
        self.name, self.spaces = name, copy.deepcopy(dict(spaces_by_agent(env)))
        for number, (_, space) in enumerate(self.spaces.values()):
            space.seed(seed + number)
        self.obs: dict[str, Any] = {}
        self.infos: dict[str, Any] = {}
        self.ended: set[str] = set()
        self.masked, self.steps = False, 0

    def reset(self, seed: int | None = None) -> dict[str, Any]:
        """Begin an episode; returns the observations by agent."""
        obs, infos = self.env.reset(seed=seed)
        self._keep(obs, infos, set())
        self._check("reset")
        return self.obs

    def step(self) -> tuple[dict[str, float], bool, bool]:
        """Take a random allowed action of each agent that acts.

        Returns:
            Rewards by agent, and whether the episode has terminated and was truncated.

        Raises:
            EnvError: an observation or a reward is not what the spaces and the API say.
        """
        actions = {
            agent: sample_allowed_action(self.spaces[agent][1], self.name, obs, self.infos.get(agent, {}))
            for agent, obs in self.obs.items()
            if agent not in self.ended
        }
        obs, rewards, terminated, truncated, infos = self.env.step(actions if self.several else actions[ONE])
        if not self.several:
            check_scalars(self.name, self.steps, rewards, terminated, truncated, infos or {})
            rewards, terminated, truncated = {ONE: rewards}, {ALL: terminated}, {ALL: truncated}
        flagged = {agent for part in (terminated, truncated) for agent, value in part.items() if value and agent != ALL}
        self._keep(obs, infos, self.ended | flagged)
        self._check(f"step {self.steps}")
        self.steps += 1
        return {agent: float(reward) for agent, reward in rewards.items()}, bool(terminated[ALL]), bool(truncated[ALL])

    def _keep(self, obs: Any, infos: Any, ended: set[str]) -> None:
        self.obs, self.infos = (dict(obs), dict(infos)) if self.several else ({ONE: obs}, {ONE: infos or {}})
        self.ended = ended
        self.masked = self.masked or any(
            "action_mask" in held
            for part in (self.obs, self.infos)
            for held in part.values()
            if isinstance(held, Mapping)
        )

    def _check(self, where: str) -> None:
        for agent, obs in self.obs.items():
            check_obs(self.spaces[agent][0], self.name, obs, f"{where}, agent {agent!r}" if agent else where)


@dataclass(slots=True)
class Played:
    """What `play` recorded.

    Attributes:
        rewards: of all agents, in order.
        lengths, terminated: of each whole episode: its steps, and whether it was terminated, not truncated.
        step_seconds, reset_seconds: of each call.
        largest: path of a float part of an observation → its largest absolute value; images are left out.
        grown_mb: memory that the process has gained from a tenth of the steps to the end, MiB.
        masked: whether there were action masks.
    """

    rewards: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    terminated: list[bool] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    reset_seconds: list[float] = field(default_factory=list)
    largest: dict[str, float] = field(default_factory=dict)
    grown_mb: float = 0.0
    masked: bool = False


def play(env: gym.Env[Any, Any], name: str, steps: int, seconds: float) -> Played:
    """Play with random actions for a number of steps, or for some time if that is shorter.

    Raises:
        EnvError: the environment breaks the API after the steps that the check before a run takes.
    """
    player, played = RandomPlayer(env, name), Played()
    began = time.perf_counter()
    _timed_reset(player, played, 0)
    length, before = 0, resident_mb()
    for step in range(steps):
        start = time.perf_counter()
        rewards, terminated, truncated = player.step()
        now = time.perf_counter()
        played.step_seconds.append(now - start)
        played.rewards.extend(rewards.values())
        _record_sizes(player, played)
        length += 1
        if terminated or truncated:
            played.lengths.append(length)
            played.terminated.append(terminated)
            length = 0
            _timed_reset(player, played, None)
        if step == steps // 10:  # what is allocated once has been allocated
            before = resident_mb()
        if now - began > seconds:
            break
    played.grown_mb, played.masked = resident_mb() - before, player.masked
    return played


def _timed_reset(player: RandomPlayer, played: Played, seed: int | None) -> None:
    start = time.perf_counter()
    player.reset(seed)
    played.reset_seconds.append(time.perf_counter() - start)
    _record_sizes(player, played)


def _record_sizes(player: RandomPlayer, played: Played) -> None:
    for agent, obs in player.obs.items():
        space = player.spaces[agent][0]
        for (path, leaf), value in zip(leaf_spaces(space), leaf_values(space, obs), strict=True):
            if isinstance(leaf, gym.spaces.Box) and len(leaf.shape) < 3 and np.size(value):
                place = "/".join(filter(None, (agent, path)))
                largest = float(np.abs(np.asarray(value, dtype=np.float64)).max())
                played.largest[place] = max(largest, played.largest.get(place, 0.0))


def trajectory(env: gym.Env[Any, Any], name: str, steps: int, seed: int | None) -> list[Any]:
    """Observations, rewards and ends of some steps after a reset with this seed; actions are the same every time."""
    player = RandomPlayer(env, name, seed=1)
    found: list[Any] = [_copy(player.reset(seed))]
    for _ in range(steps):
        rewards, terminated, truncated = player.step()
        found.append((_copy(player.obs), dict(rewards), terminated, truncated))
        if terminated or truncated:
            break
    return found


def first_difference(one: list[Any], other: list[Any]) -> int | None:
    """The first step (0: the reset) in which two trajectories differ; `None` if they are equal."""
    for step, (a, b) in enumerate(zip(one, other, strict=False)):
        if not equal(a, b):
            return step
    return None if len(one) == len(other) else min(len(one), len(other))


def _copy(value: Any) -> Any:
    """A copy of nested arrays, which an environment may change in place."""
    if isinstance(value, Mapping):
        return {key: _copy(child) for key, child in value.items()}
    if isinstance(value, tuple | list):
        return tuple(map(_copy, value))
    return np.array(value)
