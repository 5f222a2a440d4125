"""remote_vector_env_with_custom_api: a callback sets the task of each environment after each result."""

from __future__ import annotations

from gymnasium.spaces import Box

from lightning_rl.rllib.agents.callbacks import DefaultCallbacks
from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.env.apis.task_settable_env import TaskSettableEnv


class NonVectorizedEnvToBeVectorized(TaskSettableEnv):
    def __init__(self, config):
        self.action_space = Box(0, 1, shape=(1,))
        self.observation_space = Box(0, 1, shape=(2,))
        self.task = 1

    def reset(self):
        self.steps = 0
        return self.observation_space.sample()

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), float(self.task), self.steps > 10, {}

    def set_task(self, task):
        self.task = task


class TaskSettingCallback(DefaultCallbacks):
    def on_train_result(self, *, trainer, result: dict, **kwargs) -> None:
        phase = 3 if result["episode_reward_mean"] < 20 else 0
        trainer.workers.foreach_env(lambda env: env.set_task(phase))


def test_the_task_of_every_environment_changes_what_it_pays() -> None:
    """Eleven steps of 1, then of 3 in the episodes that start after the first result, then of 0."""
    config = {
        "env": NonVectorizedEnvToBeVectorized,
        "callbacks": TaskSettingCallback,
        "num_workers": 0,
        "num_envs_per_worker": 4,
        "train_batch_size": 44,
        "metrics_smoothing_episodes": 4,
        "framework": "torch",
    }
    trainer = PPOTrainer(config=config)
    first, second = trainer.train(), trainer.train()
    tasks = trainer.workers.foreach_env(lambda env: env.task)
    trainer.stop()
    assert first["episode_reward_mean"] == 11 and second["episode_reward_mean"] == 33
    assert tasks == [[0] * 4]
