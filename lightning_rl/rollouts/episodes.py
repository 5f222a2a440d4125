"""Returns and lengths of the episodes in a worker's environments, and the callbacks at their starts and ends.

The end of an Atari life is an end for learning (`terminated`), but not here: whole games are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from lightning_rl.envs.atari import LIFE_LOST
from lightning_rl.schema.signatures import takes_keyword

__all__ = ["AgentSteps", "Episode", "EpisodeTracker", "concat_episodes", "episode_ends", "was_cut"]


class Episode(tuple[float, int]):
    """Return (with several agents, the sum over all) and length of an episode: a pair with attributes.

    Args:
        episode_return, length: the pair.
        by_agent: agent → (the policy that it had, its return), of the agents that acted; empty with one agent.
        cut: whether it would have continued after `max_episode_steps`.
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


@dataclass(frozen=True, slots=True)
class AgentSteps:
    """What the `A` agents of `B` environments did in `T` steps.

    Attributes:
        policy_ids: those of the worker.
        acting: bool `[T+1, B, A]`, whose actions each step took; the last entry: whose the next step takes.
        owners: int `[T+1, B, A]`, the index in `policy_ids` of the policy that each agent had.
        eps_id: int64 `[T+1, B]`, the environment's episode.
        rewards: float64 `[T, B, A]`, of each step.
        terminated, truncated: bool `[T, B, A]`, agents that ended in the step.
        central_obs: float32 `[T+1, B, S]`; `None` if no policy reads it.
    """

    policy_ids: Sequence[str]
    acting: np.ndarray
    owners: np.ndarray
    eps_id: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    central_obs: np.ndarray | None = None

    def policies_at(self, step: int, env: int) -> list[str]:
        """The policy that each agent had."""
        numbers: list[int] = self.owners[step, env].tolist()
        return [self.policy_ids[number] for number in numbers]


def was_cut(episode: tuple[float, int]) -> bool:
    """Whether an episode of an evaluation would have continued after `max_episode_steps`."""
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
        agents: names of those whose returns are counted one by one, `A`.

    Attributes:
        just_ended: bool `[B]`, whether the next row is a reset.
        just_over: bool `[B]`, whether that reset starts a new episode.
        lengths: int `[B]`, steps of the running episodes.
        finished: (environment, episode) of the episodes that ended, oldest first.
    """

    def __init__(
        self,
        num_envs: int,
        same_step: bool,
        hooks: Mapping[str, Sequence[Callable[..., None]]],
        worker: Any,
        agents: Sequence[str] = (),
    ) -> None:
        self.num_envs, self.same_step, self.hooks, self.worker, self.agents = num_envs, same_step, hooks, worker, agents
        self.finished: list[tuple[int, Episode]] = []
        self._gains = np.zeros((num_envs, len(agents)))  # return of each agent in the running episode
        self._acted = np.zeros((num_envs, len(agents)), dtype=bool)

    def restart(self) -> None:
        """Drop the running episodes, because all environments were reset."""
        self.just_ended, self.just_over = np.zeros((2, self.num_envs), dtype=bool)
        self.returns = np.zeros(self.num_envs)
        self.lengths = np.zeros(self.num_envs, dtype=np.int64)
        self._gains[:], self._acted[:] = 0.0, False
        self._start(range(self.num_envs))

    def state_dict(self) -> dict[str, Tensor]:
        """The running episodes."""
        running = {"just_ended": self.just_ended, "just_over": self.just_over}
        running |= {"returns": self.returns, "lengths": self.lengths}
        if self.agents:
            running |= {"gains": self._gains, "acted": self._acted}
        return {name: torch.from_numpy(value.copy()) for name, value in running.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue with the running episodes of `state`; no callback is called."""
        self.just_ended, self.just_over = state["just_ended"].numpy().copy(), state["just_over"].numpy().copy()
        self.returns, self.lengths = state["returns"].numpy().copy(), state["lengths"].numpy().copy()
        if self.agents:
            self._gains, self._acted = state["gains"].numpy().copy(), state["acted"].numpy().copy()

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

    def count(
        self, rewards: np.ndarray, ended: np.ndarray, over: np.ndarray, of_agents: AgentSteps | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Count rows `[T, B]`; the rows between two ends are counted at once.

        Args:
            rewards: the environments' raw rewards.
            ended: bool, whether a reset follows.
            over: bool, whether the episode ended (`episode_ends`).
            of_agents: what each agent did, if there are several.

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
            if of_agents is not None:  # in a reset no agent acts, and none gets a reward
                self._gains += of_agents.rewards[start : stop + 1].sum(axis=0)
                self._acted |= of_agents.acting[start : stop + 1].any(axis=0)
            if not self.same_step:
                self.just_ended, self.just_over = ended[stop], over[stop]
            if np.count_nonzero(over[stop]):
                self._end(over[stop], stop, of_agents)
            start = stop + 1
        return experience, steps

    def pop_finished(self) -> list[tuple[int, Episode]]:
        """(environment, episode) of those that ended since the last call."""
        finished, self.finished = self.finished, []
        return finished

    def episode(self, env: int, policy_ids: Sequence[str], cut: bool = False) -> Episode:
        """The running episode of an environment, so far.

        Args:
            env: index of the environment.
            policy_ids: the policy of each of `agents`.
            cut: see `Episode`.
        """
        each = zip(self.agents, policy_ids, self._gains[env].tolist(), self._acted[env].tolist(), strict=True)
        by_agent = {agent: (policy_id, gain) for agent, policy_id, gain, has_acted in each if has_acted}
        return Episode(float(self.returns[env]), int(self.lengths[env]), by_agent, cut)

    def _end(self, ended: np.ndarray, step: int, of_agents: AgentSteps | None) -> None:
        for index in np.flatnonzero(ended).tolist():
            episode = self.episode(index, () if of_agents is None else of_agents.policies_at(step, index))
            self.finished.append((index, episode))
            arguments: dict[str, Any] = {"env_index": index, "episode_return": episode[0], "episode_length": episode[1]}
            for hook in self.hooks["on_episode_end"]:
                takes_returns = self.agents and takes_keyword(hook, "agent_returns")
                hook(worker=self.worker, **arguments, **({"agent_returns": episode.by_agent} if takes_returns else {}))
        self.returns[ended] = 0.0
        self.lengths[ended] = 0
        self._gains[ended] = 0.0
        self._acted[ended] = False
        if self.same_step:
            self._start(np.flatnonzero(ended))

    def _start(self, indices: Iterable[int]) -> None:
        for hook in self.hooks["on_episode_start"]:
            for index in indices:
                hook(worker=self.worker, env_index=int(index))


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
