"""Infos of any form, in every vector environment."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from lightning_rl.envs import EnvCreator
from lightning_rl.envs.async_vector_env import AsyncEnv
from lightning_rl.envs.infos import join_infos
from lightning_rl.envs.sync_vector_env import SyncEnv
from lightning_rl.policies import PPO
from lightning_rl.rollouts import RolloutWorker
from tests.envs.odd_infos import INFOS, OddInfos

CREATORS = [partial(OddInfos, number) for number in (2, 0, 1)]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP], ids=lambda mode: mode.name)
@pytest.mark.parametrize("kind", [SyncEnv, AsyncEnv])
def test_an_environment_may_give_any_info(kind: type[SyncEnv | AsyncEnv], mode: AutoresetMode) -> None:
    env = kind(CREATORS, mode)
    try:
        _, infos = env.reset(seed=[1, 2, 3])
        assert [path.shape for path in infos["path"]] == [(2, 2), (0, 2), (1, 2)] and infos["_path"].all()
        for _ in range(2 * len(INFOS)):
            env.step(env.action_space.sample())
    finally:
        env.close()


def test_a_value_is_never_changed_by_the_value_of_another_environment() -> None:
    """Gymnasium stores 0.5 in an array of integers as 0, and spreads an array of one value over three."""
    values: list[list[Any]] = [[1, 0.5], [np.zeros(3), np.ones(1)], ["text", 0.5], [{"b": 1}, 0.5], [True, 7]]
    for given in values:
        joined = join_infos({env: {"a": value} for env, value in enumerate(given)}, 3)
        for env, value in enumerate(given):
            np.testing.assert_equal(joined["a"][env], value)
        assert joined["_a"].tolist() == [True, True, False]


def test_a_policy_samples_from_an_environment_with_odd_infos() -> None:
    """The worker reads action masks and ends of lives from an info, and nothing else."""
    env = EnvCreator(OddInfos, {"number": 2})
    worker = RolloutWorker(env, PPO(*env.spaces()), num_envs=2, fragment_length=3 * len(INFOS), max_env_restarts=0)
    worker.sample()
    assert len(worker.get_metrics()["episode_returns"]) == 4
