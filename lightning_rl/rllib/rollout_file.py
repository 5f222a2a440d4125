"""Files of played episodes, as `rllib rollout --out` writes them."""

from __future__ import annotations

import pickle
import shelve
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import gymnasium as gym

from lightning_rl.envs.creator import EnvCreator
from lightning_rl.envs.multi_agent import MultiAgentEnv, MultiAgentWrapper
from lightning_rl.rllib.env_api import agent_number

__all__ = ["RolloutFile"]


class RolloutFile:
    """Writes the steps of episodes; a context manager, whose end closes the file.

    The file is a pickled list with a list for each episode, of its steps [obs, action, next_obs, reward, done], by
    agent with several agents. `done` is true of the last one.

    Args:
        path: the file.
        use_shelve: write a `shelve` with the entries "0", "1", … and "num_episodes", of which the memory holds one
            episode only, in place of the list.
        save_info: whether steps end with a sixth entry, the info.
        progress: what is to be played, such as "10 episodes"; a file `__progress_NAME` beside says how far that is,
            and is deleted at the end. `None`: there is no such file.
        numbered: whether agents "agent_0", … are called 0, … in the environment.
    """

    def __init__(
        self, path: Path, use_shelve: bool, save_info: bool, progress: str | None = None, numbered: bool = False
    ) -> None:
        self.path, self.save_info, self.progress, self.numbered = path, save_info, progress, numbered
        self.progress_file = path.with_name(f"__progress_{path.name}")
        self.steps: list[list[Any]] = []  # of the running episode
        self._episodes: list[list[list[Any]]] = []
        self._shelf = shelve.open(str(path), "n") if use_shelve else None  # noqa: SIM115
        self._count = 0

    def recorded(self, creator: EnvCreator) -> EnvCreator:
        """The creator of the same environments, whose steps are written; one of them may run at a time."""
        return replace(creator, wrappers=[*creator.wrappers, partial(_record, file=self)])

    def end_episode(self, progress: int) -> None:
        """The running episode is over.

        Args:
            progress: episodes or steps that have been played.
        """
        episode, self.steps = self.steps, []
        episode = [[*step[:4], step is episode[-1], *step[4 : 4 + self.save_info]] for step in episode]
        if self._shelf is None:
            self._episodes.append(episode)
        else:
            self._shelf[str(self._count)] = episode
        self._count += 1
        if self.progress is not None:
            self.progress_file.write_text(f"{progress} / {self.progress} completed\n", encoding="utf-8")

    def add(self, obs: Any, action: Any, next_obs: Any, reward: Any, info: Any) -> None:
        """A step of the running episode."""
        self.steps.append([obs, action, next_obs, reward, info])

    def by_agent(self, values: Mapping[str, Any]) -> dict[Any, Any]:
        """Values by the environment's names of its agents."""
        return {agent_number(agent) if self.numbered else agent: value for agent, value in values.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._shelf is None:
            with self.path.open("wb") as file:
                pickle.dump(self._episodes, file)
        else:
            self._shelf["num_episodes"] = self._count
            self._shelf.close()
        self.progress_file.unlink(missing_ok=True)


class _RecordedEnv(gym.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: gym.Env[Any, Any], file: RolloutFile) -> None:
        super().__init__(env)
        self.file, self._obs = file, None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._obs, info = self.env.reset(seed=seed, options=options)
        self.file.steps = []
        return self._obs, info

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.file.add(self._obs, action, obs, reward, info)
        self._obs = obs
        return obs, reward, terminated, truncated, info


class _RecordedAgents(MultiAgentWrapper):
    def __init__(self, env: MultiAgentEnv, file: RolloutFile) -> None:
        super().__init__(env)
        self.file, self._obs = file, {}

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        self._obs, infos = self.env.reset(seed=seed, options=options)
        self.file.steps = []
        return self._obs, infos

    def step(self, actions: dict[str, Any]) -> Any:
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        self.file.add(*map(self.file.by_agent, (self._obs, actions, obs, rewards, infos)))
        self._obs = obs
        return obs, rewards, terminated, truncated, infos


def _record(env: Any, file: RolloutFile) -> Any:
    return _RecordedEnv(env, file) if isinstance(env, gym.Env) else _RecordedAgents(env, file)
