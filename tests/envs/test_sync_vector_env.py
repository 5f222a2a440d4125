"""SyncEnv compared with Gymnasium's SyncVectorEnv."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from lightning_rl.envs.sync_vector_env import SyncEnv
from tests.refusals import not_refused

SPACES = {
    "box": (spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Box(-1.0, 1.0, (2,), np.float32)),
    "counted": (spaces.Discrete(7), spaces.Discrete(3, start=1)),
    "image": (spaces.Box(0, 255, (4, 4, 1), np.uint8), spaces.MultiDiscrete([2, 3])),
    "bits": (spaces.MultiBinary(3), spaces.MultiBinary(2)),
    "number": (spaces.Box(-1.0, 1.0, (), np.float64), spaces.Box(0, 5, (2,), np.int64)),
    "nested": (spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0.0, 1.0, (2,))), spaces.Tuple([spaces.Discrete(2)])),
}


class EncodedActions(gym.Env[Any, Any]):
    """Random observations, rewards that encode the action, infos in some steps; episodes of 3 to 5 steps."""

    def __init__(self, kind: str, index: int = 0) -> None:
        self.observation_space, self.action_space = copy.deepcopy(SPACES[kind])  # each draws from its own
        self.index, self.step_number = index, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.step_number = 0
        return self.observation_space.sample(), {"begun": True}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.step_number += 1
        ended = self.step_number == 3 + self.index
        reward = float(np.sum([np.sum(part) for part in action] if isinstance(action, tuple) else action))
        info = {} if self.step_number % 2 else {"odd": self.step_number, "where": np.array([reward])}
        return self.observation_space.sample(), reward, ended and self.index != 1, ended and self.index == 1, info


def same(one: Any, other: Any) -> None:
    """Equal in values, types and keys, nested."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            same(one[name], other[name])
    elif isinstance(one, tuple) or (isinstance(one, np.ndarray) and one.dtype == object):  # final observations
        for left, right in zip(one, other, strict=True):
            same(left, right)
    elif one is not None:
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP], ids=lambda mode: mode.name)
@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("num_envs", [1, 3])
def test_sync_env_equals_gymnasium_s_sync_vector_env(kind: str, num_envs: int, mode: AutoresetMode) -> None:
    def creators() -> list[Any]:
        return [lambda index=index: EncodedActions(kind, index) for index in range(num_envs)]

    quick, slow = SyncEnv(creators(), mode), SyncVectorEnv(creators(), autoreset_mode=mode)
    same(quick.reset(seed=3), slow.reset(seed=3))
    quick.action_space.seed(0)
    for _ in range(20):
        actions = quick.action_space.sample()
        same(quick.step(actions), slow.step(actions))


def test_an_observation_of_another_shape_or_kind_is_refused() -> None:
    """Some of these would fit by being spread; floats in a space of bytes would lose what is behind the point."""
    cases = [
        ("box", 0.5, r"\(\).*\(3,\)"),
        ("box", np.zeros((1, 3)), r"shape \(1, 3\)"),
        ("box", np.zeros(2), r"shape \(2,\)"),
        ("image", np.full((4, 4, 1), 0.5), "Cannot cast"),
    ]

    def step(kind: str, observation: Any) -> None:
        env = EncodedActions(kind)
        vector = SyncEnv([lambda: env], AutoresetMode.NEXT_STEP)
        vector.reset(seed=0)
        env.step = lambda action: (observation, 0.0, False, False, {})  # type: ignore[method-assign]
        vector.step(vector.action_space.sample())

    assert not_refused(step, cases, (ValueError, TypeError)) == []
