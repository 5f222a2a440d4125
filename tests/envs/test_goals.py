"""GoalFunctions: rewards and terminations of many goals at once, as the environment defines them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from lightning_rl.envs import EnvCreator
from lightning_rl.envs.goals import GoalFunctions
from lightning_rl.envs.toy_tasks import BitFlipping, PointReach
from tests.envs.classic_control import CARTPOLE
from tests.refusals import not_refused

PLACE = spaces.Box(-1.0, 1.0, (2,), np.float64)


class Robot(gym.Env[Any, Any]):
    """The form of gymnasium-robotics' Fetch and Hand: rewards of many goals at once, one `False` for all ends."""

    def __init__(self, **parts: Any) -> None:
        parts = {"observation": spaces.Box(-9.0, 9.0, (10,)), "achieved_goal": PLACE, "desired_goal": PLACE, **parts}
        self.observation_space = spaces.Dict({name: part for name, part in parts.items() if part is not None})
        self.action_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.calls: list[Any] = []

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> Any:
        self.calls.append(np.shape(achieved_goal))
        distance = np.linalg.norm(achieved_goal - desired_goal, axis=-1)
        return -(distance > 0.05).astype(np.float32)

    def compute_terminated(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> bool:
        return False

    def compute_truncated(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> bool:
        return False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.obs = self.observation_space.sample()
        return self.obs, {}

    def step(self, action: np.ndarray) -> Any:
        self.obs["achieved_goal"] = np.clip(self.obs["achieved_goal"] + 0.1 * action[:2], -1, 1)
        obs = {name: part.copy() for name, part in self.obs.items()}
        goals = obs["achieved_goal"], obs["desired_goal"], (info := {"is_success": False})
        flags = self.compute_terminated(*goals), self.compute_truncated(*goals)
        return obs, float(self.compute_reward(*goals)), *flags, info


class Maze(Robot):
    """The form of gymnasium-robotics' mazes: the end is written for one row (of many it gives one bool for all)."""

    def compute_terminated(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> bool:
        return bool(np.linalg.norm(achieved_goal - desired_goal) <= 0.45)


class OneByOne(Robot):
    """A reward that is written for one row and raises for many."""

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> Any:
        self.calls.append(np.shape(achieved_goal))
        x, y = achieved_goal - desired_goal
        return -float(x * x + y * y > 0.0025)


GOALS = np.array([[0.0, 0.0], [0.3, 0.0], [0.3, 0.9]]), np.array([[0.01, 0.0], [0.3, 0.3], [-0.3, -0.9]])


@pytest.mark.parametrize(("env", "calls"), [(Robot, [(3, 2)]), (OneByOne, [(2,)] * 3)])
def test_goal_functions_take_one_call_for_many_goals_if_the_environment_accepts_rows(env: type, calls: Any) -> None:
    goals = GoalFunctions(EnvCreator(env, max_episode_steps=50))
    goals.env.unwrapped.calls.clear()
    rewards = goals.compute_rewards(*GOALS)
    assert rewards.tolist() == [0.0, -1.0, -1.0] and rewards.dtype == np.float64
    assert goals.env.unwrapped.calls == calls


@pytest.mark.parametrize(("env", "ends"), [(Robot, [False] * 3), (Maze, [True, True, False])])
def test_goal_functions_call_a_termination_that_reduces_all_rows_row_by_row(env: type, ends: list[bool]) -> None:
    """The norm over all rows is 1.9, so one call for all would end no episode."""
    goals = GoalFunctions(EnvCreator(env, max_episode_steps=50))
    assert goals.terminates and goals.compute_terminated(*GOALS).tolist() == ends


class Doubled(gym.Wrapper[Any, Any, Any, Any]):
    """Doubles rewards, and its compute_reward does too."""

    def step(self, action: Any) -> Any:
        obs, reward, *rest = self.env.step(action)
        return obs, 2 * float(reward), *rest

    def compute_reward(self, *arguments: Any) -> Any:
        return 2 * self.env.get_wrapper_attr("compute_reward")(*arguments)


class Silent(gym.RewardWrapper[Any, Any]):
    """Adds 3 to rewards, without a compute_reward."""

    def reward(self, reward: Any) -> float:
        return float(reward) + 3.0


def test_goal_functions_use_the_outermost_wrapper_that_defines_compute_reward(caplog: pytest.LogCaptureFixture) -> None:
    goals = GoalFunctions(EnvCreator(Robot, wrappers=[Doubled, gym.wrappers.RecordEpisodeStatistics]))
    assert goals.compute_rewards(*GOALS).tolist() == [0.0, -2.0, -2.0]
    assert not caplog.records
    GoalFunctions(EnvCreator(Robot, wrappers=[Silent]))
    assert "'Robot' paid 2.0" in caplog.text


@pytest.mark.parametrize("kind", [BitFlipping, PointReach])
def test_rewards_of_the_toy_tasks_equal_their_compute_reward(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    goals = GoalFunctions(EnvCreator(kind))
    assert not caplog.records and all(goals._at_once.values())


def test_closed_goal_functions_open_their_environment_again() -> None:
    goals = GoalFunctions(EnvCreator(Robot))
    goals.close()
    goals.close()
    assert goals.env is None
    assert goals.compute_rewards(*GOALS).tolist() == [0.0, -1.0, -1.0] and goals.env is not None


class Rewardless(Robot):
    compute_reward = None  # type: ignore[assignment]

    def __getattribute__(self, name: str) -> Any:
        if name == "compute_reward":
            raise AttributeError(name)
        return super().__getattribute__(name)


class Unusable(Robot):
    """Rewards that cannot be used."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        rewards = {"none": None, "two": np.zeros(2)}
        return rewards[self.kind] if self.kind in rewards else float(info["is_success"])


def test_an_environment_without_usable_goal_functions_is_refused_in_one_line() -> None:
    cases = [
        (CARTPOLE, "'CartPole-v1'"),
        (EnvCreator(Robot, {"desired_goal": None}), "'Robot'"),
        (EnvCreator(Rewardless), r"has no compute_reward\(achieved_goal, desired_goal, info\).*use data=replay"),
        (EnvCreator(Unusable, {"kind": "info"}), r"compute_reward.*'Unusable'.*KeyError"),
        (EnvCreator(Unusable, {"kind": "none"}), r"compute_reward.*'Unusable'"),
        (EnvCreator(Unusable, {"kind": "two"}), r"compute_reward.*'Unusable'.*one number"),
    ]
    one_line = [(creator, rf"^[^\n]*{words}[^\n]*\Z") for creator, words in cases]
    assert not_refused(GoalFunctions, one_line) == []
