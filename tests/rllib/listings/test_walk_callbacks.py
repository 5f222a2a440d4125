"""The seven methods of callbacks."""

from __future__ import annotations

from typing import Any

from lightning_rl.rllib.agents.callbacks import DefaultCallbacks
from lightning_rl.rllib.agents.ppo import PPOTrainer

called: dict[str, int] = {}


def count(name):
    called[name] = called.get(name, 0) + 1


class MyCallbacks(DefaultCallbacks):
    def on_episode_start(self, worker, base_env, policies, episode, env_index, **kwargs):
        count("on_episode_start")
        episode.user_data["pole_angles"] = []

    def on_episode_step(self, worker, base_env, policies, episode, env_index, **kwargs):
        count("on_episode_step")
        episode.user_data["pole_angles"].append(abs(episode.last_observation_for()[2]))

    def on_episode_end(self, worker, base_env, policies, episode, env_index, **kwargs):
        count("on_episode_end")
        angles = episode.user_data["pole_angles"]
        assert len(angles) == episode.length
        episode.custom_metrics["pole_angle"] = sum(angles) / len(angles)

    def on_postprocess_trajectory(
        self, worker, episode, agent_id, policy_id, policies, postprocessed_batch, original_batches, **kwargs
    ):
        count("on_postprocess_trajectory")

    def on_sample_end(self, worker, samples, **kwargs):
        count("on_sample_end")

    def on_learn_on_batch(self, policy, train_batch, result, **kwargs):
        count("on_learn_on_batch")

    def on_train_result(self, trainer, result, **kwargs):
        count("on_train_result")
        result["callback_ok"] = True


def test_each_method_is_called_and_custom_metrics_are_in_the_result() -> None:
    config = {"callbacks": MyCallbacks, "train_batch_size": 400, "num_envs_per_worker": 2, "num_sgd_iter": 1}
    trainer: Any = PPOTrainer(env="CartPole-v1", config=config)
    result = trainer.train()
    trainer.stop()
    assert set(called) == {name for name in vars(MyCallbacks) if name.startswith("on_")}
    assert called["on_episode_step"] == result["timesteps_total"] and result["callback_ok"]
    metrics = result["custom_metrics"]
    assert 0 < metrics["pole_angle_min"] <= metrics["pole_angle_mean"] <= metrics["pole_angle_max"] < 0.4
