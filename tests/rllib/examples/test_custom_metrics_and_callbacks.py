"""custom_metrics_and_callbacks: the mean angle of the pole as a metric, and the other calls."""

from __future__ import annotations

import numpy as np

from lightning_rl.rllib.agents.callbacks import DefaultCallbacks
from lightning_rl.rllib.agents.pg import PGTrainer
from lightning_rl.rllib.env import BaseEnv
from lightning_rl.rllib.evaluation import Episode, RolloutWorker
from lightning_rl.rllib.policy import Policy
from lightning_rl.rllib.policy.sample_batch import SampleBatch


class MyCallbacks(DefaultCallbacks):
    def on_episode_start(
        self,
        *,
        worker: RolloutWorker,
        base_env: BaseEnv,
        policies: dict[str, Policy],
        episode: Episode,
        env_index: int,
        **kwargs,
    ):
        assert episode.length == 0, "called right after the reset"
        episode.user_data["pole_angles"] = []
        episode.hist_data["pole_angles"] = []

    def on_episode_step(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        assert episode.length > 0, "not called right after the reset"
        pole_angle = abs(episode.last_observation_for()[2])
        assert pole_angle == abs(episode.last_raw_obs_for()[2])
        episode.user_data["pole_angles"].append(pole_angle)

    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        episode.custom_metrics["pole_angle"] = np.mean(episode.user_data["pole_angles"])
        episode.hist_data["pole_angles"] = episode.user_data["pole_angles"]

    def on_sample_end(self, *, worker: RolloutWorker, samples: SampleBatch, **kwargs):
        assert samples.count > 0

    def on_train_result(self, *, trainer, result: dict, **kwargs):
        assert result["episodes_this_iter"] > 0
        result["callback_ok"] = True

    def on_learn_on_batch(self, *, policy: Policy, train_batch: SampleBatch, result: dict, **kwargs) -> None:
        result["sum_actions_in_train_batch"] = np.sum(train_batch["actions"])

    def on_postprocess_trajectory(
        self,
        *,
        worker: RolloutWorker,
        episode: Episode,
        agent_id: str,
        policy_id: str,
        policies: dict[str, Policy],
        postprocessed_batch: SampleBatch,
        original_batches: dict[str, SampleBatch],
        **kwargs,
    ):
        if "num_batches" not in episode.custom_metrics:
            episode.custom_metrics["num_batches"] = 0
        episode.custom_metrics["num_batches"] += 1


def test_the_metrics_of_all_calls_are_in_the_result() -> None:
    config = {"env": "CartPole-v0", "num_envs_per_worker": 2, "callbacks": MyCallbacks, "framework": "torch"}
    trainer = PGTrainer(config=config)
    for _ in range(3):
        result = trainer.train()
    trainer.stop()
    custom_metrics = result["custom_metrics"]
    assert 0 < custom_metrics["pole_angle_min"] < custom_metrics["pole_angle_mean"] < custom_metrics["pole_angle_max"]
    assert custom_metrics["num_batches_mean"] >= 1
    assert result["callback_ok"] and len(result["hist_stats"]["pole_angles"]) > 10
    assert "sum_actions_in_train_batch" in custom_metrics["default_policy"]
