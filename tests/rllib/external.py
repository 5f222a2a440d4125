"""External environments as RLlib's tests have them: loops around an environment that is stepped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from lightning_rl.rllib.env.external_env import ExternalEnv
from lightning_rl.rllib.env.external_multi_agent_env import ExternalMultiAgentEnv

LEARNS = {"train_batch_size": 1000, "rollout_fragment_length": 200, "sgd_minibatch_size": 128, "num_sgd_iter": 10}
LEARNS |= {"lr": 1e-3, "framework": "torch"}


class Classic:
    """An environment with RLlib 1.x's `reset` and `step`; every `reset` has its own seed."""

    def __init__(self, seed: int = 0, id: str = "CartPole-v1") -> None:
        self.env, self.seed = gym.make(id, max_episode_steps=200), seed
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space

    def reset(self) -> Any:
        self.seed += 1
        return self.env.reset(seed=self.seed)[0]

    def step(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, _ = self.env.step(action)
        return obs, float(reward), terminated or truncated, {"TimeLimit.truncated": truncated and not terminated}


class Counting:
    """Episodes of `length` steps with a reward of 1 each; observes the step and the latest action."""

    observation_space, action_space = spaces.Box(0.0, 1e4, (2,)), spaces.Discrete(3)

    def __init__(self, length: int) -> None:
        self.length = length

    def reset(self) -> Any:
        self.now = 0
        return np.zeros(2, np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        self.now += 1
        return np.array([self.now, action], np.float32), 1.0, self.now >= self.length, {}


class SimpleServing(ExternalEnv):
    """One episode after another; `choose(step)` may give the action that is taken in place of the policy's."""

    def __init__(self, env: Any, choose: Callable[[int], Any] = lambda step: None) -> None:
        ExternalEnv.__init__(self, env.action_space, env.observation_space)
        self.env, self.choose = env, choose

    def run(self) -> None:
        step = 0
        while True:
            episode, obs, done = self.start_episode(), self.env.reset(), False
            while not done:
                action = self.choose(step)
                if action is None:
                    action = self.get_action(episode, obs)
                else:
                    self.log_action(episode, obs, action)
                obs, reward, done, info = self.env.step(action)
                self.log_returns(episode, reward, info=info)
                step += 1
            self.end_episode(episode, obs)


class MultiServing(ExternalEnv):
    """Five environments, two of which act at a time."""

    def __init__(self, create: Callable[[int], Any]) -> None:
        self.envs = [create(1000 * number) for number in range(5)]
        ExternalEnv.__init__(self, self.envs[0].action_space, self.envs[0].observation_space)

    def run(self) -> None:
        obs: dict[int, Any] = {}
        generator, started = np.random.default_rng(0), 0
        ids: dict[int, str] = {}
        while True:
            active = generator.choice(5, 2, replace=False).tolist()
            for number in active:
                if number not in obs:
                    started += 1
                    ids[number] = self.start_episode(episode_id=f"episode {started}")
                    obs[number] = self.envs[number].reset()
            for number, action in [(number, self.get_action(ids[number], obs[number])) for number in active]:
                obs[number], reward, done, _ = self.envs[number].step(action)
                self.log_returns(ids[number], reward)
                if done:
                    self.end_episode(ids[number], obs.pop(number))


class AgentsServing(ExternalMultiAgentEnv):
    """`Counting` for each of some agents; agent `a` ends after `lengths[a]` steps. `chosen` is logged for all."""

    def __init__(self, lengths: dict[Any, int], chosen: int | None = None) -> None:
        self.envs, self.chosen = {agent: Counting(length) for agent, length in lengths.items()}, chosen
        acted, observed = Counting.action_space, Counting.observation_space
        super().__init__(dict.fromkeys(lengths, acted), dict.fromkeys(lengths, observed))

    def run(self) -> None:
        while True:
            episode, obs = self.start_episode(), {agent: env.reset() for agent, env in self.envs.items()}
            last = obs
            while obs:
                if self.chosen is None:
                    actions = self.get_action(episode, obs)
                else:
                    actions = dict.fromkeys(obs, self.chosen)
                    self.log_action(episode, obs, actions)
                assert set(actions) == set(obs)
                steps = {agent: self.envs[agent].step(action) for agent, action in actions.items()}
                over = {agent: done for agent, (_, _, done, _) in steps.items()}
                last = {agent: seen for agent, (seen, _, _, _) in steps.items()}
                self.log_returns(episode, {agent: step[1] for agent, step in steps.items()}, {}, over)
                obs = {agent: seen for agent, seen in last.items() if not over[agent]}
            self.end_episode(episode, last)
