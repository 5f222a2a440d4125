"""Recomputes rewards and terminations of goal-conditioned environments for other goals than the actual one.

Such an environment has the form of gymnasium-robotics: observations are a Dict of "observation", "achieved_goal" and
"desired_goal", and `compute_reward(achieved_goal, desired_goal, info)` returns a step's reward; an optional
`compute_terminated` of the same arguments returns whether the step ends the episode.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from lightning_rl.envs.creator import EnvCreator
from lightning_rl.errors import ConfigError

__all__ = ["GOAL_PARTS", "GoalFunctions"]

GOAL_PARTS = ("observation", "achieved_goal", "desired_goal")
TRIED = 7  # number of goals with which a function is tested
STEPS = 20  # random steps whose rewards are compared

log = logging.getLogger(__name__)


class GoalFunctions:
    """`compute_reward` and `compute_terminated` of an environment, for many goals at once.

    A separate environment is created for them, with its wrappers, and used for nothing else. A function that returns
    the same values for several rows at once as for each row alone is called once for all, any other function row by
    row.

    Args:
        creator: creates the environment.

    Attributes:
        env: the open environment.
        terminates: whether the environment has a `compute_terminated`.

    Raises:
        ConfigError: the observations have no goals, or `compute_reward` is missing or does not accept goals other than
            those of the step.
        EnvError: see `EnvCreator.make_single`.
    """

    def __init__(self, creator: EnvCreator) -> None:
        self.creator, self.name = creator, creator.name
        self.env: gym.Env[Any, Any] | None = None
        self._functions: dict[str, Callable[..., Any]] = {}
        self._at_once: dict[str, bool] = {}
        try:
            env = self._open()
            goals = tried_goals(goal_space(env.observation_space, self.name))
            if "compute_reward" not in self._functions:
                raise ConfigError(
                    f"data=hindsight: environment {self.name!r} has no compute_reward(achieved_goal, desired_goal, "
                    "info), which gives the reward of another goal: add it, or use data=replay"
                )
            self.terminates = "compute_terminated" in self._functions
            for name in self._functions:
                self._at_once[name] = self._works_at_once(name, *goals)
            if creator.check:
                self._compare_steps(env)
        except BaseException:
            self.close()
            raise

    def compute_rewards(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Rewards `[N]` (float64) of steps that reached `achieved [N, *]`, for the goals `desired [N, *]`."""
        return self._call("compute_reward", achieved, desired).astype(np.float64)

    def compute_terminated(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Whether these steps end the episode, bool `[N]`; requires `terminates`."""
        return self._call("compute_terminated", achieved, desired).astype(bool)

    def close(self) -> None:
        """Close the environment; the next call creates another one."""
        if self.env is not None:
            self.env.close()
        self.env = None

    def _open(self) -> gym.Env[Any, Any]:
        self.env = env = self.creator.make_single()
        names = [name for name in ("compute_reward", "compute_terminated") if env.has_wrapper_attr(name)]
        self._functions = {name: env.get_wrapper_attr(name) for name in names}  # from the outermost wrapper
        return env

    def _call(self, name: str, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        if self.env is None:
            self._open()
        function = self._functions[name]
        if self._at_once[name]:
            return np.asarray(function(achieved, desired, {}))
        return np.array([np.asarray(function(*goals, {})).item() for goals in zip(achieved, desired, strict=True)])

    def _works_at_once(self, name: str, achieved: np.ndarray, desired: np.ndarray) -> bool:
        """Whether a function returns the same values for several rows together as for each row alone.

        Raises:
            ConfigError: a single row raises an error, or returns no number.
        """
        function = self._functions[name]
        try:
            alone = [float(function(reached, wanted, {})) for reached, wanted in zip(achieved, desired, strict=True)]
        except Exception as error:
            raise ConfigError(
                f"data=hindsight: {name} of environment {self.name!r} failed with {type(error).__name__}: {error}; it "
                "has to return one number, for goals of other steps and with an empty info"
            ) from error
        try:
            together = np.asarray(function(achieved, desired, {}))
        except Exception:  # written for one row: it is called row by row, and its errors are raised then
            return False
        return together.shape == (len(achieved),) and bool(np.allclose(together, alone, equal_nan=True))

    def _compare_steps(self, env: gym.Env[Any, Any]) -> None:
        """Warn if the rewards of steps differ from those of `compute_reward`."""
        env.action_space.seed(0)
        env.reset(seed=0)
        for _ in range(STEPS):
            obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            again = self.compute_rewards(obs["achieved_goal"][None], obs["desired_goal"][None])[0]
            if not np.isclose(again, float(reward), rtol=1e-4, atol=1e-6):
                log.warning(
                    "environment %r paid %s for a step, and its compute_reward says %s: rows with another goal get the "
                    "latter",
                    self.name,
                    float(reward),
                    again,
                )
                return
            if terminated or truncated:
                env.reset()


def goal_space(space: gym.Space[Any], name: str) -> spaces.Dict:
    """The observation space of an environment, checked for achieved and desired goals of equal shape.

    Raises:
        ConfigError: the observations have no such goals.
    """
    if not isinstance(space, spaces.Dict) or any(part not in space.spaces for part in GOAL_PARTS):
        raise ConfigError(
            f"data=hindsight: environment {name!r} has observations {space}; expected a Dict of "
            f"{', '.join(GOAL_PARTS)}, as environments of gymnasium-robotics have: use data=replay"
        )
    return space


def tried_goals(space: spaces.Dict) -> tuple[np.ndarray, np.ndarray]:
    """Achieved and desired goals to test with, `[TRIED, *]` each; every second desired goal equals the achieved one."""
    achieved, desired = space["achieved_goal"], space["desired_goal"]
    achieved.seed(0)
    desired.seed(1)
    reached = np.stack([np.asarray(achieved.sample()) for _ in range(TRIED)])
    wanted = np.stack([np.asarray(desired.sample()) for _ in range(TRIED)])
    wanted[::2] = reached[::2]
    return reached, wanted
