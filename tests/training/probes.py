"""Environments so small that all values are known: each isolates one thing that an algorithm must get right."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from lightning_rl.envs import EnvCreator
from lightning_rl.policies import Policy
from lightning_rl.rollouts import RolloutWorker


class Probe(gym.Env[np.ndarray, Any]):
    """Episodes of `length` steps over observations that the subclass draws."""

    length = 1
    truncates = False  # whether the end is a time limit

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-1, 5, (1,), np.float32)
        self.action_space: gym.Space[Any] = gym.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        self.obs = self.observe()
        return self.obs, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = float(self.reward(action))
        self.t += 1
        self.obs = self.observe()
        end = self.t >= self.length
        return self.obs, reward, end and not self.truncates, end and self.truncates, {}

    def observe(self) -> np.ndarray:
        return np.zeros(1, np.float32)

    def reward(self, action: Any) -> float:
        return 1.0


class ConstantReward(Probe):
    """One step, reward 1: V = 1. Fails if the value head or its loss is broken."""


class ObservedReward(Probe):
    """One step, the reward is the sign that is shown: V(±1) = ±1. Fails if observations do not reach the value head."""

    def observe(self) -> np.ndarray:
        return np.array([self.np_random.choice([-1.0, 1.0])], np.float32)

    def reward(self, action: Any) -> float:
        return float(self.obs[0])


class DelayedReward(Probe):
    """Two steps, reward 1 at the end: V(first) = γ, V(second) = 1. Fails if discounting is off by one."""

    length = 2

    def observe(self) -> np.ndarray:
        return np.array([float(self.t)], np.float32)

    def reward(self, action: Any) -> float:
        return float(self.t == 1)


class TimeLimited(Probe):
    """Reward 1 for ever, cut every 5 steps by a time limit: V = 1/(1−γ). Fails if that is taken for an end."""

    length = 5
    truncates = True


class Terminating(TimeLimited):
    """The same with a termination: V(first of 5) = 1 + γ + … + γ⁴. Fails if a termination is bootstrapped."""

    truncates = False

    def observe(self) -> np.ndarray:
        return np.array([float(self.t)], np.float32)


class ChosenReward(Probe):
    """One step, action 1 pays 1, action 0 costs 1. Fails if the policy gradient's sign is wrong."""

    def reward(self, action: Any) -> float:
        return 1.0 if action == 1 else -1.0


class MatchedReward(ObservedReward):
    """One step, the action must match the sign that is shown. Fails if observations do not reach the policy."""

    def reward(self, action: Any) -> float:
        return 1.0 if (action == 1) == (self.obs[0] > 0) else -1.0


class MatchedBox(ObservedReward):
    """One step, an action in [−2, 6] costs its squared distance from 2 + 2·sign shown.

    Fails if un-squashing or a Gaussian's gradient is wrong.
    """

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Box(-2.0, 6.0, (1,), np.float32)

    def reward(self, action: Any) -> float:
        return -float((action[0] - (2.0 + 2.0 * self.obs[0])) ** 2) / 8.0


def learn_by_hand(policy: Policy, env: EnvCreator, iterations: int, seed: int = 1, **options: Any) -> list[Any]:
    """Sample, learn, repeat; the worker acts with the learner's own weights. Gives the metrics of each iteration."""
    options = {"num_envs": 8, "fragment_length": 16, "vectorization": "sync", "seed": seed, **options}
    worker = RolloutWorker(env, policy, **options)
    return [policy.learn_on_batch(worker.sample()) for _ in range(iterations)]


def best_actions(policy: Policy) -> np.ndarray:
    """The best actions where −1 and 1 are shown."""
    return np.array([policy.compute_single_action(np.array([sign], np.float32)) for sign in (-1, 1)]).squeeze()
