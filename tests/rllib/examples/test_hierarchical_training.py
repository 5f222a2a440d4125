"""hierarchical_training: an agent that sets directions, and low-level agents, a new one for each, that walk there."""

from __future__ import annotations

import random

import pytest
from gymnasium.spaces import Box, Discrete, Tuple

from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.env import MultiAgentEnv
from tests.rllib.examples.training import train_until

MAP = ["#####", "#S  #", "### #", "#F  #", "#####"]
MOVES = [(-1, 0), (0, 1), (1, 0), (0, -1)]


class WindyMazeEnv:
    """A maze in which the only choice is whether to go with the wind, which changes each step; 100 at its end."""

    def __init__(self, env_config):
        cells = {letter: (x, y) for x, row in enumerate(MAP) for y, letter in enumerate(row)}
        self.start_pos, self.end_pos = cells["S"], cells["F"]
        self.observation_space = Tuple([Box(0, 100, shape=(2,)), Discrete(4)])
        self.action_space = Discrete(2)

    def reset(self):
        self.pos, self.num_steps = self.start_pos, 0
        self.wind_direction = random.choice([0, 1, 2, 3])
        return [[self.pos[0], self.pos[1]], self.wind_direction]

    def step(self, action):
        if action == 1:
            self.pos = self.get_new_pos(self.pos, self.wind_direction)
        self.num_steps += 1
        self.wind_direction = random.choice([0, 1, 2, 3])
        at_goal = self.pos == self.end_pos
        obs = [[self.pos[0], self.pos[1]], self.wind_direction]
        return obs, 100 * int(at_goal), at_goal or self.num_steps >= 100, {}

    def get_new_pos(self, pos, direction):
        x, y = pos[0] + MOVES[direction][0], pos[1] + MOVES[direction][1]
        return pos if MAP[x][y] == "#" else (x, y)


class HierarchicalWindyMazeEnv(MultiAgentEnv):
    def __init__(self, env_config):
        self.flat_env = WindyMazeEnv(env_config)
        self._agent_ids = {"high_level_agent", *(f"low_level_{i}" for i in range(1, 5))}  # of 25 steps each

    def reset(self):
        self.cur_obs = self.flat_env.reset()
        self.num_high_level_steps = 0
        return {"high_level_agent": self.cur_obs}

    def step(self, action_dict):
        assert len(action_dict) == 1, action_dict
        if "high_level_agent" in action_dict:
            return self._high_level_step(action_dict["high_level_agent"])
        return self._low_level_step(next(iter(action_dict.values())))

    def _high_level_step(self, action):
        self.current_goal, self.steps_remaining_at_level = action, 25
        self.num_high_level_steps += 1
        self.low_level_agent_id = f"low_level_{self.num_high_level_steps}"
        agent = self.low_level_agent_id
        return {agent: [self.cur_obs, self.current_goal]}, {agent: 0}, {"__all__": False}, {}

    def _low_level_step(self, action):
        self.steps_remaining_at_level -= 1
        agent, cur_pos = self.low_level_agent_id, tuple(self.cur_obs[0])
        goal_pos = self.flat_env.get_new_pos(cur_pos, self.current_goal)
        f_obs, f_rew, f_done, _ = self.flat_env.step(action)
        new_pos, self.cur_obs = tuple(f_obs[0]), f_obs
        moved = (1 if new_pos == goal_pos else -1) if new_pos != cur_pos else 0
        obs, rew, done = {agent: [f_obs, self.current_goal]}, {agent: moved}, {"__all__": f_done}
        if f_done or self.steps_remaining_at_level == 0:
            done[agent] = True
            rew["high_level_agent"], obs["high_level_agent"] = f_rew, f_obs
        return obs, rew, done, {}


def policy_mapping_fn(agent_id):
    return "low_level_policy" if agent_id.startswith("low_level_") else "high_level_policy"


@pytest.mark.parametrize("stop_reward", [40, pytest.param(90, marks=pytest.mark.slow)])
def test_the_flat_agent_leaves_the_maze(stop_reward: float) -> None:
    trainer = PPOTrainer(config={"env": WindyMazeEnv, "num_workers": 0, "entropy_coeff": 0.01})
    train_until(trainer, stop_reward, stop_iters=100)
    trainer.stop()


@pytest.mark.parametrize("stop_reward", [20, pytest.param(90, marks=pytest.mark.slow)])
def test_two_levels_leave_the_maze(stop_reward: float) -> None:
    maze = WindyMazeEnv(None)
    low_level_space = Tuple([maze.observation_space, Discrete(4)])
    config = {
        "env": HierarchicalWindyMazeEnv,
        "num_workers": 0,
        "entropy_coeff": 0.01,
        "multiagent": {
            "policies": {
                "high_level_policy": (None, maze.observation_space, Discrete(4), {"gamma": 0.9}),
                "low_level_policy": (None, low_level_space, maze.action_space, {"gamma": 0.0}),
            },
            "policy_mapping_fn": policy_mapping_fn,
        },
    }
    trainer = PPOTrainer(config=config)
    for _ in range(200):
        high = trainer.train()["policy_reward_mean"].get("high_level_policy", 0)
        if high >= stop_reward:
            break
    trainer.stop()
    assert high >= stop_reward
