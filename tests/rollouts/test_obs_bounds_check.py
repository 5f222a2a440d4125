"""An environment that leaves its observation space during a run is warned of once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from lightning_rl.envs import EnvCreator
from lightning_rl.envs.multi_agent.random_play import check_env
from lightning_rl.errors import EnvApiError
from lightning_rl.policies import PPO, PolicySet
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.rollouts.obs_bounds_check import CHECK_EVERY, ObsBoundsCheck
from tests.refusals import not_refused
from tests.rollouts.counting import Counter


class Leaves(Counter):
    """Counts its steps in a space that ends at 50."""

    def __init__(self) -> None:
        super().__init__(length=10**9)
        self.observation_space = spaces.Box(0, 50, (1,), np.float32)


def test_an_environment_that_leaves_its_space_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    check_env(Leaves(), "leaves")  # 20 steps are too few for a warning
    creator = EnvCreator(Leaves)
    worker = RolloutWorker(creator, PPO(*creator.spaces()), num_envs=2, fragment_length=64)
    for _ in range(3 * CHECK_EVERY // 128):
        assert worker.sample().count > 0
    (record,) = caplog.records
    assert "Leaves" in record.message and "worker 0 left" in record.message
    assert "64.0 at index [0], outside [0.0, 50.0]" in record.message


@pytest.mark.parametrize(
    ("space", "inside", "outside"),
    [
        (spaces.Box(-1, 1, (2,)), [[1.0, -1.0]], [[1.0, -1.5]]),
        (spaces.Discrete(3, start=1), [3], [0]),
        (spaces.MultiDiscrete([2, 3]), [[1, 2]], [[1, 3]]),
        (spaces.MultiBinary(2), [[0, 1]], [[0, 2]]),
        (spaces.Dict(b=spaces.Box(0, 1, (1,))), {"b": [[1.0]]}, {"b": [[2.0]]}),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(9)]), ([1], [8]), ([1], [9])),
    ],
)
def test_bounds_of_all_kinds_of_spaces(space: Any, inside: Any, outside: Any, caplog: pytest.LogCaptureFixture) -> None:
    watch = ObsBoundsCheck(space, "it", str)
    watch.check(inside, env_steps=10)
    assert watch.due == 10 + CHECK_EVERY and not caplog.records
    watch.check(outside, env_steps=10)
    assert watch.due == float("inf") and len(caplog.records) == 1


@pytest.mark.parametrize("space", [spaces.Box(0, 255, (2, 2), np.uint8), spaces.Box(-np.inf, np.inf, (3,))])
def test_a_space_without_bounds_is_never_checked(space: Any) -> None:
    assert ObsBoundsCheck(space, "it", str).due == float("inf")


class LeavesDiscrete(Counter):
    """Its observation is the number of its steps, of which the space holds 0 to 3."""

    def __init__(self) -> None:
        super().__init__(length=10**9)
        self.observation_space = spaces.Discrete(4)

    def _obs(self) -> int:
        return self.count


OUTSIDE = r"worker 0 left its observation_space: the observation of .* is 4, outside \[0, 3\]; the policy failed on it"


def test_an_observation_that_the_policy_cannot_read_is_the_environments_fault() -> None:
    """In a fragment, in an evaluation, and of one agent of several."""
    creator, copies = (EnvCreator(LeavesDiscrete, agents=agents, check=False) for agents in (None, 2))
    policy = PPO(*creator.spaces())
    both = PolicySet(*copies.spaces(), policies={"shared": policy}, policy_mapping={"*": "shared"})
    one, several = (
        RolloutWorker(env, acting, num_envs=2, fragment_length=64)
        for env, acting in ((creator, policy), (copies, both))
    )
    calls = (one.sample, lambda: one.run_episodes(1), several.sample)
    assert not_refused(lambda call: call(), [(call, OUTSIDE) for call in calls], EnvApiError) == []
