"""Plays an environment at length with random actions, and records what it gives."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import data_equivalence

from lightning_rl.envs.multi_agent.random_play import RandomPlayer
from lightning_rl.process_memory import resident_mb
from lightning_rl.spaces import leaf_spaces, leaf_values

__all__ = ["Played", "first_difference", "play", "trajectory"]


@dataclass(slots=True)
class Played:
    """What `play` recorded.

    Attributes:
        rewards: the rewards of all agents, in order.
        lengths, terminated: the steps of each whole episode, and whether it was terminated, not truncated.
        step_seconds, reset_seconds: the duration of each call.
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


def play(player: RandomPlayer, steps: int, seconds: float) -> Played:
    """Play for a number of steps, or for some time if that is shorter.

    Raises:
        EnvError: the environment raises, or breaks the API after the steps that the check before a run takes.
    """
    played, deadline = Played(), time.perf_counter() + seconds
    player.reset(0)
    played.reset_seconds.append(player.seconds)
    _record_sizes(player, played)
    length, before = 0, resident_mb()
    for step in range(steps):
        rewards, terminated, truncated = player.step()
        played.step_seconds.append(player.seconds)
        played.rewards.extend(rewards.values())
        _record_sizes(player, played)
        length += 1
        if terminated or truncated:
            played.lengths.append(length)
            played.terminated.append(terminated)
            length = 0
            player.reset()
            played.reset_seconds.append(player.seconds)
            _record_sizes(player, played)
        if step == steps // 10:  # what is allocated once has been allocated
            before = resident_mb()
        if time.perf_counter() > deadline:
            break
    played.grown_mb, played.masked = resident_mb() - before, player.masked
    return played


def _record_sizes(player: RandomPlayer, played: Played) -> None:
    for agent, obs in player.obs.items():
        space = player.spaces[agent][0]
        for (path, leaf), value in zip(leaf_spaces(space), leaf_values(space, obs), strict=True):
            if isinstance(leaf, gym.spaces.Box) and len(leaf.shape) < 3 and np.size(value):
                place = "/".join(filter(None, (agent, path)))
                largest = float(np.abs(np.asarray(value, dtype=np.float64)).max())
                played.largest[place] = max(largest, played.largest.get(place, 0.0))


def trajectory(env: Any, name: str, steps: int, seed: int | None) -> list[Any]:
    """Observations, rewards and ends of some steps after a reset with this seed; actions are the same every time."""
    player = RandomPlayer(env, name, seed=1)
    found: list[Any] = [copy.deepcopy(player.reset(seed))]
    for _ in range(steps):
        rewards, terminated, truncated = player.step()
        found.append((copy.deepcopy(player.obs), rewards, terminated, truncated))
        if terminated or truncated:
            break
    return found


def first_difference(one: list[Any], other: list[Any]) -> int | None:
    """The first step (0: the reset) in which two trajectories differ; `None` if they are equal."""
    for step, (a, b) in enumerate(zip(one, other, strict=False)):
        if not data_equivalence(a, b, exact=True):
            return step
    return None if len(one) == len(other) else min(len(one), len(other))
