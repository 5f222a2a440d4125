"""Several packed multi-agent environments, stepped together in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, create_empty_array

from lightning_rl.envs.multi_agent.packed_env import (
    AgentFlags,
    PackedEnv,
    actions_by_agent,
    plain_actions,
    row_of,
)
from lightning_rl.envs.replayable_env import ReplayableEnv

__all__ = ["PackedVectorEnv"]


class PackedVectorEnv(VectorEnv[Any, Any, Any]):
    """Gymnasium's synchronous vector environment for `PackedEnv`s, whose observations are written in place.

    An environment whose whole episode ended is reset in the next step, which takes no actions of it. Observations are
    overwritten by the next step: the caller copies what it keeps.

    Args:
        creators: functions that create the environments; if they create `ReplayableEnv`s of `PackedEnv`s, each reset is
            seeded, so that episodes can be replayed.
    """

    def __init__(self, creators: Sequence[Callable[[], PackedEnv | ReplayableEnv]]) -> None:
        self.env_fns = creators
        created = [create() for create in creators]
        self.envs: list[PackedEnv] = [env.unwrapped for env in created]  # type: ignore[misc]  # pyright: ignore
        self._episodes = [env.episodes if isinstance(env, ReplayableEnv) else None for env in created]
        first = self.envs[0]
        self.num_envs, self.layout = len(self.envs), first.layout
        self.metadata = {**first.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.render_mode = first.render_mode
        self.single_observation_space, self.single_action_space = first.observation_space, first.action_space
        self.observation_space = batch_space(first.observation_space, self.num_envs)
        self.action_space = batch_space(first.action_space, self.num_envs)
        self._arrays: Any = create_empty_array(first.observation_space, self.num_envs, fn=np.zeros)
        for row, env in enumerate(self.envs):
            env.bind(self._arrays, row)
        self._flags = AgentFlags(self._arrays, self.layout.agents, first.name)
        self._ended: np.ndarray = np.zeros(self.num_envs, dtype=bool)
        self._replayed: tuple[np.ndarray, np.ndarray] | None = None  # the ends of a replay's last step

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments."""
        seeds = [seed + row for row in range(self.num_envs)] if isinstance(seed, int) else seed
        self._flags.clear()
        self._flags.begin_episode()
        for row, env in enumerate(self.envs):
            env.write_reset(seed=self._seed_of_reset(row, None if seeds is None else seeds[row]), options=options)
        self._flags.settle(False, False)
        self._ended[:] = False
        return self._arrays, {}

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all environments, and reset those whose episode ended in the last step."""
        terminated: np.ndarray = np.zeros(self.num_envs, dtype=bool)
        truncated = terminated.copy()
        flags, ended = self._flags, self._ended.tolist()
        if self._replayed is not None:
            (terminated, truncated), self._replayed = self._replayed, None
            return self._arrays, flags.rewards.sum(axis=1), terminated, truncated, {}
        acting, given = flags.acts.tolist(), plain_actions(self.layout, actions)
        flags.clear()
        for row, env in enumerate(self.envs):
            if ended[row]:
                flags.begin_episode(row)
                env.write_reset(seed=self._seed_of_reset(row, None))
            else:
                own = actions_by_agent(self.layout, [row_of(each, row) for each in given], acting[row])
                terminated[row], truncated[row] = env.write_step(own)
        flags.settle(terminated, truncated)
        self._ended = terminated | truncated
        return self._arrays, flags.rewards.sum(axis=1), terminated, truncated, {}

    def _seed_of_reset(self, row: int, seed: int | None) -> int | None:
        episodes = self._episodes[row]
        return seed if episodes is None else episodes.seed_of_reset(seed)

    def replay(self, episodes: Sequence[tuple[int, Sequence[Any]]], deadline: float) -> list[tuple[float, int] | None]:
        """Bring each environment to the end of (episode, its actions); the next `step` answers as their last did.

        As `SeededEpisodes.replay`; [None] if that of an environment fails.
        """
        played: list[tuple[float, int] | None] = []
        ends = np.zeros((2, self.num_envs), dtype=bool)
        flags = self._flags
        for row, (env, (number, actions)) in enumerate(zip(self.envs, episodes, strict=True)):
            episodes_of_env = self._episodes[row]
            assert episodes_of_env is not None
            found = episodes_of_env.replay(env, number, actions, deadline)
            if found is None:
                return [None]
            answer, (gained, steps) = found
            ends[:, row] = answer[2:4]
            flags.there[row], flags.gone[row] = env.flags.there, env.flags.gone
            played.append((gained, steps))
        self._ended = ends[0] | ends[1]
        self._replayed = ends[0], ends[1]
        return played

    def render(self) -> tuple[Any, ...]:
        """What each environment renders."""
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **keywords: Any) -> None:
        """Close all environments."""
        for env in self.envs:
            env.close()
