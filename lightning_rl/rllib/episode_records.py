"""What policies of a process may look up about the episodes that its workers play."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lightning_rl.sample_batch import DEFAULT_POLICY

__all__ = ["AGENT", "EpisodeRecords", "reads_episodes"]

AGENT = "agent0"  # RLlib's name of a single agent
KEPT = 100_000  # environment steps


def reads_episodes(policy: Any) -> bool:
    """Whether a policy, or a class of policies, has a method that gets episodes or trajectories in RLlib's form."""
    return getattr(policy, "reads_trajectories", False) or getattr(policy, "takes_episodes", False)


class EpisodeRecords:
    """The episodes and infos of the workers in this process, and what worker processes have sent of theirs.

    Copies are empty. The oldest ended episodes are dropped when there are infos of more than `KEPT` steps.

    Attributes:
        acting: (stream, worker) → the episode of each environment: the running one, or between two the last one.
        agents: policy id → the agents of its lanes in an environment, where there are several.
        worker: the worker that episodes of other processes have here, where their policies learn.
    """

    def __init__(self) -> None:
        self.acting: dict[tuple[str, int], list[Any]] = {}
        self.agents: dict[str, list[Any]] = {}
        self.worker: Any = None
        self._played: dict[int, tuple[Any, dict[tuple[Any, int], Any]]] = {}  # "eps_id" → the episode, and its infos
        self._count = 0

    def __reduce__(self) -> tuple[type[EpisodeRecords], tuple[()]]:
        return EpisodeRecords, ()  # episodes hold their worker and its environments

    def add_episode(self, episode: Any) -> None:
        """Let trajectories find an episode by its "eps_id"."""
        self._played[episode.episode_id] = episode, {}

    def add_infos(self, episode: Any, infos: Mapping[tuple[Any, int], Any], steps: int = 1) -> None:
        """Keep what the environment gave its agents, (agent, step) → info, at the newest steps of the episode."""
        found = self._played[episode.episode_id][1]
        found |= infos
        self._count += steps
        while self._count > KEPT:
            oldest, _ = next(iter(self._played.values()))
            if any(oldest is each for episodes in self.acting.values() for each in episodes):
                break
            self._count -= oldest.length
            del self._played[oldest.episode_id]

    def add_copies(self, copies: Sequence[tuple[Any, Mapping[tuple[Any, int], Any]]]) -> None:
        """Take in copies of a worker process's episodes, and the infos of their steps since the last ones."""
        for copy, infos in copies:
            if (known := self.episode(copy.episode_id)) is None:
                known = copy
                self.add_episode(copy)
                steps = copy.length
            else:
                steps = copy.length - known.length
                known.update(copy)
            known.worker, known.policy_map = self.worker, self.worker.policy_map
            self.add_infos(known, infos, steps)

    def episode(self, eps_id: int) -> Any:
        """The episode of that "eps_id"; `None` if it was not recorded."""
        return self._played.get(eps_id, (None,))[0]

    def agent(self, policy_id: str | None, lane: int) -> Any:
        """The agent of a lane of a policy's fragments."""
        agents = self.agents.get(policy_id or DEFAULT_POLICY, [AGENT])
        return agents[lane % len(agents)]

    def infos(self, eps_id: int, agent: Any, steps: Sequence[int]) -> np.ndarray | None:
        """The infos `[n]` after rows of a trajectory; `None` if the episode was not recorded.

        Args:
            eps_id: the trajectory's.
            agent: that acted.
            steps: the environment's steps within the episode at which the rows were taken. An agent that waits gets its
                info with its next observation.
        """
        if eps_id not in self._played:
            return None
        (episode, infos), found = self._played[eps_id], np.empty(len(steps), dtype=object)
        waits = agent != AGENT
        following = [*steps[1:], episode.length] if waits else [step + 1 for step in steps]
        for row, (step, stop) in enumerate(zip(steps, following, strict=True)):
            found[row] = next((infos[agent, at] for at in range(step, stop) if (agent, at) in infos), {})
        return found
