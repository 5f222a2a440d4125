"""Several packed multi-agent environments, stepped together in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, create_empty_array

from lightning_rl.envs.multi_agent.packed_env import PackedEnv

__all__ = ["PackedVectorEnv"]


class PackedVectorEnv(VectorEnv[Any, Any, Any]):
    """Gymnasium's synchronous vector environment for `PackedEnv`s, whose observations are written in place.

    An environment whose whole episode ended is reset in the next step, which takes no actions of it. Observations are
    overwritten by the next step: the caller copies what it keeps.

    Args:
        creators: functions that create the environments.
    """

    def __init__(self, creators: Sequence[Callable[[], PackedEnv]]) -> None:
        self.env_fns = creators
        self.envs = [create() for create in creators]
        first = self.envs[0]
        self.num_envs, self.layout = len(self.envs), first.layout
        self.metadata = {**first.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.render_mode = first.render_mode
        self.single_observation_space, self.single_action_space = first.observation_space, first.action_space
        self.observation_space = batch_space(first.observation_space, self.num_envs)
        self.action_space = batch_space(first.action_space, self.num_envs)
        self._arrays = create_empty_array(first.observation_space, self.num_envs, fn=np.zeros)
        for row, env in enumerate(self.envs):
            env.bind(self._arrays, row)
        self._ended = np.zeros(self.num_envs, dtype=bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments."""
        seeds = [seed + row for row in range(self.num_envs)] if isinstance(seed, int) else seed
        for row, env in enumerate(self.envs):
            env.reset_in_place(seed=None if seeds is None else seeds[row], options=options)
        self._ended[:] = False
        return self._arrays, {}

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all environments, and reset those whose episode ended in the last step."""
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), dtype=bool)
        for row, env in enumerate(self.envs):
            if self._ended[row]:
                env.reset_in_place()
            else:
                own = {key: _row(value, row) for key, value in actions.items()}
                rewards[row], terminated[row], truncated[row] = env.step_in_place(own)
        self._ended = terminated | truncated
        return self._arrays, rewards, terminated, truncated, {}

    def close_extras(self, **keywords: Any) -> None:
        """Close all environments."""
        for env in self.envs:
            env.close()


def _row(value: Any, row: int) -> Any:
    if isinstance(value, Mapping):
        return {name: _row(child, row) for name, child in value.items()}
    if isinstance(value, tuple):
        return tuple(_row(child, row) for child in value)
    return value[row]
