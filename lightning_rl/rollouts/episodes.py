"""Returns and lengths of the episodes in a worker's environments, and the callbacks at their starts and ends.

The end of an Atari life is an end for learning (`terminated`), but not here: whole games are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from lightning_rl.envs.atari import LIFE_LOST
from lightning_rl.schema.signatures import takes_keyword

__all__ = [
    "AgentEpisodeTracker",
    "CutEpisode",
    "Episode",
    "EpisodeTracker",
    "MultiAgentEpisode",
    "concat_episodes",
    "episode_ends",
    "was_cut",
]

Episode = tuple[float, int]  # return, length


class CutEpisode(tuple[float, int]):
    """Return and length, up to there, of an episode that would have gone on after `max_episode_steps`."""

    cut = True


class MultiAgentEpisode(tuple[float, int]):
    """Return (the sum over all agents) and length of an episode of several agents, as the pair of any episode.

    Args:
        episode_return, length: the pair.
        by_agent: agent → (the policy that it had, its return), of the agents that acted.
        cut: whether it would have gone on after `max_episode_steps`.
    """

    by_agent: dict[str, tuple[str, float]]
    cut: bool

    def __new__(
        cls, episode_return: float, length: int, by_agent: Mapping[str, tuple[str, float]], cut: bool = False
    ) -> Self:
        """The pair, with the attributes `by_agent` and `cut`."""
        self = super().__new__(cls, (episode_return, length))
        self.by_agent, self.cut = dict(by_agent), cut
        return self

    @property
    def by_policy(self) -> dict[str, float]:
        """Policy id → mean return of those of its agents that acted."""
        found: dict[str, list[float]] = {}
        for policy_id, gain in self.by_agent.values():
            found.setdefault(policy_id, []).append(gain)
        return {policy_id: sum(own) / len(own) for policy_id, own in found.items()}

    def __getnewargs__(self) -> tuple[float, int, dict[str, tuple[str, float]], bool]:
        return self[0], self[1], self.by_agent, self.cut


def was_cut(episode: Episode) -> bool:
    """Whether an episode of an evaluation would have gone on after `max_episode_steps`."""
    return bool(getattr(episode, "cut", False))


def episode_ends(ended: np.ndarray, info: Mapping[str, Any]) -> np.ndarray:
    """Which of a step's ends `[B]` end an episode, and not only a life."""
    final = info.get("final_info")  # SAME_STEP: an ended episode's info stands apart
    life_lost = (final if isinstance(final, dict) else info).get(LIFE_LOST)
    return ended if life_lost is None else ended & ~life_lost


class EpisodeTracker:
    """Follows the running episode of each environment.

    Args:
        num_envs: environments.
        same_step: whether an environment is reset in the step that ends an episode; else the row after it is the reset.
        hooks: "on_episode_start" and "on_episode_end" → functions, called with `worker`, `env_index` and, at an end,
            `episode_return` and `episode_length`; with several agents, with `agent_returns` if it takes that.
        worker: argument of the hooks.

    Attributes:
        just_ended: bool `[B]`, whether the next row is a reset.
        just_over: bool `[B]`, whether that reset starts a new episode.
        lengths: int `[B]`, steps of the running episodes.
        finished: (environment, episode) of the episodes that ended, oldest first.
    """

    def __init__(
        self, num_envs: int, same_step: bool, hooks: Mapping[str, Sequence[Callable[..., None]]], worker: Any
    ) -> None:
        self.num_envs, self.same_step, self.hooks, self.worker = num_envs, same_step, hooks, worker
        self.finished: list[tuple[int, Episode]] = []

    def restart(self) -> None:
        """Drop the running episodes, because all environments were reset."""
        self.just_ended, self.just_over = np.zeros((2, self.num_envs), dtype=bool)
        self.returns = np.zeros(self.num_envs)
        self.lengths = np.zeros(self.num_envs, dtype=np.int64)
        self._start(range(self.num_envs))

    def state_dict(self) -> dict[str, Tensor]:
        """The running episodes."""
        running = {"just_ended": self.just_ended, "just_over": self.just_over}
        running |= {"returns": self.returns, "lengths": self.lengths}
        return {name: torch.from_numpy(value.copy()) for name, value in running.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue with the running episodes of `state`; no callback is called."""
        self.just_ended, self.just_over = state["just_ended"].numpy().copy(), state["just_over"].numpy().copy()
        self.returns, self.lengths = state["returns"].numpy().copy(), state["lengths"].numpy().copy()

    def describe_difference(self, played: Sequence[tuple[float, int] | None]) -> str:
        """Say how replayed episodes differ from the running ones; "" if they do not.

        Args:
            played: return and length of each environment's episode; `None` where they are not known.
        """
        for env, episode in enumerate(played):
            if episode is None or self.just_over[env]:  # an episode that is over is not counted any more
                continue
            now = float(self.returns[env]), int(self.lengths[env])
            if episode[1] != now[1] or not math.isclose(episode[0], now[0], rel_tol=1e-4, abs_tol=1e-6):
                return f"sub-environment {env} had a return of {now[0]:g} after {now[1]} steps, and now {episode[0]:g}"
        return ""

    def count(self, rewards: np.ndarray, ended: np.ndarray, over: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count rows `[T, B]`; the rows between two ends are counted at once.

        Args:
            rewards: as the environments gave them.
            ended: bool, whether a reset follows.
            over: bool, whether the episode ended (`episode_ends`).

        Returns:
            Whether each row is experience (the reset row after an end is not), and the step within its episode.
        """
        experience, steps = np.ones(rewards.shape, dtype=bool), np.empty(rewards.shape, dtype=np.int32)
        start, last = 0, len(rewards) - 1
        stops = [last] if last == 0 else [*np.flatnonzero(ended[:-1].any(axis=1)).tolist(), last]
        for stop in stops:
            counted = ~self.just_ended  # only the first row after an end can be a reset
            if np.count_nonzero(self.just_ended):
                self._start(np.flatnonzero(self.just_over))
            experience[start] = counted
            steps[start] = self.lengths
            self.returns += np.where(counted, rewards[start], 0.0)
            self.lengths += counted
            if stop > start:
                steps[start + 1 : stop + 1] = self.lengths + np.arange(stop - start)[:, None]
                self.returns += rewards[start + 1 : stop + 1].sum(axis=0)
                self.lengths += stop - start
            if not self.same_step:
                self.just_ended, self.just_over = ended[stop], over[stop]
            if np.count_nonzero(over[stop]):
                self._end(over[stop])
            start = stop + 1
        return experience, steps

    def pop_finished(self) -> list[tuple[int, Episode]]:
        """(environment, episode) of those that ended since the last call."""
        finished, self.finished = self.finished, []
        return finished

    def _end(self, ended: np.ndarray) -> None:
        for index in np.flatnonzero(ended).tolist():
            episode = self._finished_episode(float(self.returns[index]), int(self.lengths[index]))
            self.finished.append((index, episode))
            arguments = {"env_index": index, "episode_return": episode[0], "episode_length": episode[1]}
            for hook in self.hooks["on_episode_end"]:
                hook(worker=self.worker, **arguments, **self._more_arguments(hook, episode))
        self.returns[ended] = 0.0
        self.lengths[ended] = 0
        if self.same_step:
            self._start(np.flatnonzero(ended))

    def _finished_episode(self, episode_return: float, length: int) -> Episode:
        return episode_return, length

    def _more_arguments(self, hook: Callable[..., None], episode: Any) -> dict[str, Any]:
        """Further arguments of an "on_episode_end" hook, of those that it takes."""
        return {}

    def _start(self, indices: Iterable[int]) -> None:
        for hook in self.hooks["on_episode_start"]:
            for index in indices:
                hook(worker=self.worker, env_index=int(index))


class AgentEpisodeTracker(EpisodeTracker):
    """Follows the running episodes of environments with several agents, and the return of each agent.

    Args:
        num_envs, hooks, worker: as `EpisodeTracker`; ended environments are reset in the next step.
        agents: how many an environment has, `A`.
    """

    def __init__(
        self, num_envs: int, hooks: Mapping[str, Sequence[Callable[..., None]]], worker: Any, agents: int
    ) -> None:
        super().__init__(num_envs, False, hooks, worker)
        self.agents = agents
        self._ending: Iterator[dict[str, tuple[str, float]]] = iter(())  # `by_agent` of the episodes that end

    def restart(self) -> None:
        """Drop the running episodes, because all environments were reset."""
        self._gains = np.zeros((self.num_envs, self.agents))
        self._acted = np.zeros((self.num_envs, self.agents), dtype=bool)
        super().restart()

    def state_dict(self) -> dict[str, Tensor]:
        """The running episodes, and what each agent has got in them."""
        return {
            **super().state_dict(),
            "gains": torch.from_numpy(self._gains.copy()),
            "acted": torch.from_numpy(self._acted.copy()),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue with the running episodes of `state`; no callback is called."""
        super().load_state_dict(state)
        self._gains, self._acted = state["gains"].numpy().copy(), state["acted"].numpy().copy()

    def count_agents(
        self,
        rewards: np.ndarray,
        acting: np.ndarray,
        ended: np.ndarray,
        returns_by_agent: Callable[[int, int, np.ndarray, np.ndarray], dict[str, tuple[str, float]]],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Count rows as `count`; the finished episodes are `MultiAgentEpisode`s.

        Args:
            rewards: `[T, B, A]`.
            acting: bool `[T, B, A]`, which agents acted.
            ended: bool `[T, B]`, whether the whole episode ended.
            returns_by_agent: gives `by_agent` for (row, environment, returns `[A]`, whether each acted `[A]`).
        """
        if not np.count_nonzero(ended):
            self._gains += rewards.sum(axis=0)
            self._acted |= acting.any(axis=0)
            return self.count(rewards.sum(axis=2), ended, ended)
        first = np.zeros(self.num_envs, dtype=np.int64)  # the row where the running episode begins
        ending: list[dict[str, tuple[str, float]]] = []  # in the order in which `count` ends them
        for row, env in np.argwhere(ended).tolist():
            own = slice(first[env], row + 1)
            gains, acted = self._gains[env] + rewards[own, env].sum(axis=0), self._acted[env] | acting[own, env].any(0)
            self._gains[env], self._acted[env], first[env] = 0.0, False, row + 1
            ending.append(returns_by_agent(row, env, gains, acted))
        for env, start in enumerate(first.tolist()):
            self._gains[env] += rewards[start:, env].sum(axis=0)
            self._acted[env] |= acting[start:, env].any(axis=0)
        self._ending = iter(ending)
        return self.count(rewards.sum(axis=2), ended, ended)

    def agents_of(self, env: int) -> tuple[np.ndarray, np.ndarray]:
        """Of the running episode of an environment: each agent's return so far, and whether it acted, `[A]`."""
        return self._gains[env], self._acted[env]

    def _finished_episode(self, episode_return: float, length: int) -> MultiAgentEpisode:
        return MultiAgentEpisode(episode_return, length, next(self._ending))

    def _more_arguments(self, hook: Callable[..., None], episode: MultiAgentEpisode) -> dict[str, Any]:
        return {"agent_returns": episode.by_agent} if takes_keyword(hook, "agent_returns") else {}


def concat_episodes(metrics: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Metrics of several workers' episodes as `RolloutWorker.get_metrics` gives them, one worker after the other."""
    joined: dict[str, Any] = {"episode_returns": [], "episode_lengths": []}
    for part in metrics:
        for name, values in part.items():
            if isinstance(values, dict):
                own = joined.setdefault(name, {})
                for policy_id, returns in values.items():
                    own[policy_id] = [*own.get(policy_id, ()), *returns]
            else:
                joined[name] = [*joined.get(name, ()), *values]
    return joined
