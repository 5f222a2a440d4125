"""curriculum_learning: `env_task_fn` makes the task harder as the agent gets better."""

from __future__ import annotations

import random

import numpy as np
from gymnasium.spaces import Box, Discrete

from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.env.apis.task_settable_env import TaskSettableEnv, TaskType
from lightning_rl.rllib.env.env_context import EnvContext
from tests.rllib.examples.training import train_until


class CurriculumCapableEnv(TaskSettableEnv):
    """A corridor whose goal is `level` times as far, and pays 10 times as much for each level."""

    observation_space, action_space = Box(0.0, 20.0, (1,), np.float32), Discrete(2)

    def __init__(self, config: EnvContext):
        self.cur_level = config.get("start_level", 1)

    def reset(self):
        self.pos = self.steps = 0
        return [self.pos]

    def step(self, action):
        self.steps += 1
        self.pos = max(0, self.pos + (1 if action == 1 else -1))
        at_goal = self.pos >= 2 * self.cur_level
        reward = 10.0 ** (self.cur_level - 1) if at_goal else 0.0
        return [self.pos], reward, at_goal or self.steps >= 20, {}

    def sample_tasks(self, n_tasks):
        return [random.randint(1, 5) for _ in range(n_tasks)]

    def get_task(self):
        return self.cur_level

    def set_task(self, task):
        self.cur_level = task


def curriculum_fn(train_results: dict, task_settable_env: TaskSettableEnv, env_ctx: EnvContext) -> TaskType:
    """A level for each power of ten that the mean reward has come close to."""
    assert env_ctx.vector_index < 5 and env_ctx["start_level"] == 1
    new_task = int(np.log10(max(train_results["episode_reward_mean"], 1e-3)) + 2.1)
    return max(min(new_task, 5), 1)


def test_it_climbs_to_the_last_level() -> None:
    config = {
        "env": CurriculumCapableEnv,
        "env_config": {"start_level": 1},
        "num_workers": 0,
        "num_envs_per_worker": 5,
        "env_task_fn": curriculum_fn,
        "num_gpus": 0,
        "framework": "torch",
        "lr": 3e-3,
    }
    trainer = PPOTrainer(config=config)
    train_until(trainer, stop_reward=5000.0, stop_iters=50)
    levels = trainer.workers.foreach_env(lambda env: env.get_task())
    trainer.stop()
    assert levels == [[5] * 5]
