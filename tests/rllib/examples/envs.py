"""Environments that several of RLlib's examples share, with the API of its time: `reset() -> obs`, four-tuples."""

from __future__ import annotations

import random

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

from lightning_rl.rllib.env.multi_agent_env import MultiAgentEnv


class CartPole:
    """CartPole with an episode of 200 steps at most, as CartPole-v0."""

    def __init__(self, config=None):
        self.env = gym.make("CartPole-v1", max_episode_steps=200)
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space

    def seed(self, seed=None):
        self.env.reset(seed=seed)

    def reset(self):
        return self.env.reset()[0]

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated or truncated, {**info, "TimeLimit.truncated": truncated}


class StatelessCartPole(CartPole):
    """CartPole that hides its velocities."""

    def __init__(self, config=None):
        super().__init__(config)
        high = self.observation_space.high[[0, 2]]
        self.observation_space = Box(-high, high, dtype=np.float32)

    def reset(self):
        return super().reset()[[0, 2]]

    def step(self, action):
        obs, *rest = super().step(action)
        return obs[[0, 2]], *rest


class SimpleCorridor:
    """A corridor with the goal at its right end: −0.1 for a step, and 0 to 2 for the last one."""

    def __init__(self, config):
        self.end_pos, self.cur_pos = config["corridor_length"], 0
        self.action_space = Discrete(2)
        self.observation_space = Box(0.0, 10.0, shape=(1,), dtype=np.float32)
        self.seed(config.worker_index * config.num_workers)

    def set_corridor_length(self, length):
        self.end_pos = length

    def seed(self, seed=None):
        random.seed(seed)

    def reset(self):
        self.cur_pos = 0
        return [self.cur_pos]

    def step(self, action):
        assert action in (0, 1), action
        self.cur_pos = max(0, self.cur_pos + (1 if action == 1 else -1))
        done = self.cur_pos >= self.end_pos
        return [self.cur_pos], random.random() * 2 if done else -0.1, done, {}


class MultiAgentCartPole(MultiAgentEnv):
    """Independent CartPoles, one for each agent 0, 1, …; the episode ends with the last of them."""

    def __init__(self, config):
        self.poles = [CartPole() for _ in range(config["num_agents"])]
        self.observation_space, self.action_space = self.poles[0].observation_space, self.poles[0].action_space

    def reset(self):
        self.over = set()
        return {agent: pole.reset() for agent, pole in enumerate(self.poles)}

    def step(self, action_dict):
        obs, rewards, dones, infos = {}, {}, {}, {}
        for agent, action in action_dict.items():
            obs[agent], rewards[agent], dones[agent], infos[agent] = self.poles[agent].step(action)
            if dones[agent]:
                self.over.add(agent)
        dones["__all__"] = len(self.over) == len(self.poles)
        return obs, rewards, dones, infos


class TwoStepGame(MultiAgentEnv):
    """The matrix game of QMIX's paper: 7 is safe, and 8 needs both agents to choose action 1 in the second step."""

    action_space = Discrete(2)
    observation_space = Discrete(6)

    def __init__(self, env_config):
        self.one_hot = env_config.get("one_hot_state_encoding", False)
        if self.one_hot:
            encoded = MultiDiscrete([2, 2, 2, 3])
            self.observation_space = (
                Dict({"obs": encoded, "state": MultiDiscrete([2, 2, 2])})
                if env_config.get("separate_state_space")
                else encoded
            )

    def reset(self):
        self.state = 0
        return self._obs()

    def step(self, action_dict):
        first, second = action_dict[0], action_dict[1]
        if self.state == 0:
            self.state = 1 + int(first)
            reward, done = 0, False
        else:
            reward = 7 if self.state == 1 else [[0, 1], [1, 8]][first][second]
            done = True
        return self._obs(), {0: reward / 2, 1: reward / 2}, {"__all__": done}, {}

    def _obs(self):
        if not self.one_hot:
            return {0: self.state, 1: self.state + 3}
        state = np.eye(3, dtype=np.int64)[self.state]
        both = {agent: np.append(state, agent + 1) for agent in (0, 1)}
        if isinstance(self.observation_space, Dict):
            return {agent: {"obs": own, "state": state} for agent, own in both.items()}
        return both


class RepeatAfterMeEnv:
    """Shows bits; 1 for the one that was shown `repeat_delay` steps ago, −1 for the other."""

    def __init__(self, config=None):
        self.observation_space, self.action_space = Discrete(2), Discrete(2)
        self.delay = (config or {}).get("repeat_delay", 1)

    def reset(self):
        self.history = [0] * self.delay
        return self._next()

    def step(self, action):
        reward = 1 if action == self.history[-1 - self.delay] else -1
        done = len(self.history) > 100
        return self._next(), reward, done, {}

    def _next(self):
        self.history.append(random.choice([0, 1]))
        return self.history[-1]


class NestedSpaceRepeatAfterMeEnv:
    """A bandit over any space: the closer the action is to the observation, the smaller is the loss."""

    def __init__(self, config):
        self.observation_space = self.action_space = config["space"]

    def reset(self):
        self.steps = 0
        return self._next()

    def step(self, action):
        self.steps += 1
        reward = -self._distance(self.current, action)
        return self._next(), reward, self.steps >= 10, {}

    def _next(self):
        self.current = self.observation_space.sample()
        return self.current

    def _distance(self, obs, action):
        if isinstance(obs, dict):
            return sum(self._distance(obs[name], action[name]) for name in obs)
        if isinstance(obs, tuple):
            return sum(map(self._distance, obs, action))
        if np.issubdtype(np.asarray(obs).dtype, np.integer):
            return float(obs != action)
        return float(np.sum((np.asarray(obs) - action) ** 2))


class CorrelatedActionsEnv:
    """The first action has to repeat the observation, and the second one the first."""

    def __init__(self, config=None):
        self.observation_space, self.action_space = Discrete(2), Tuple([Discrete(2), Discrete(2)])

    def reset(self):
        self.steps = 0
        return self._next()

    def step(self, action):
        first, second = action
        self.steps += 1
        reward = (5 if first == self.last else 0) + (5 if first == second else 0)
        return self._next(), reward, self.steps >= 20, {}

    def _next(self):
        self.last = random.choice([0, 1])
        return self.last
