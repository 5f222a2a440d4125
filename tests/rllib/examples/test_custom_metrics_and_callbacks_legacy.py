"""custom_metrics_and_callbacks_legacy: callbacks as a dict of functions, which get their arguments in one dict."""

from __future__ import annotations

import numpy as np

from lightning_rl.rllib.agents.pg import PGTrainer


def on_episode_start(info):
    episode = info["episode"]
    assert episode.length == 0
    episode.user_data["pole_angles"] = []


def on_episode_step(info):
    episode = info["episode"]
    episode.user_data["pole_angles"].append(abs(episode.last_observation_for()[2]))


def on_episode_end(info):
    episode = info["episode"]
    episode.custom_metrics["pole_angle"] = np.mean(episode.user_data["pole_angles"])


def on_sample_end(info):
    assert info["samples"].count > 0 and info["worker"].num_envs == 2


def on_train_result(info):
    info["result"]["callback_ok"] = info["trainer"] is not None


def on_postprocess_traj(info):
    episode, batch = info["episode"], info["post_batch"]
    assert batch.count > 0 and info["pre_batch"][1].count == batch.count
    episode.custom_metrics.setdefault("num_batches", 0)
    episode.custom_metrics["num_batches"] += 1


def test_functions_add_metrics() -> None:
    callbacks = {
        "on_episode_start": on_episode_start,
        "on_episode_step": on_episode_step,
        "on_episode_end": on_episode_end,
        "on_sample_end": on_sample_end,
        "on_train_result": on_train_result,
        "on_postprocess_traj": on_postprocess_traj,
    }
    config = {"env": "CartPole-v1", "num_envs_per_worker": 2, "callbacks": callbacks, "framework": "torch"}
    trainer = PGTrainer(config=config)
    for _ in range(2):
        result = trainer.train()
    trainer.stop()
    found = result["custom_metrics"]
    assert 0 < found["pole_angle_min"] < found["pole_angle_mean"] < found["pole_angle_max"]
    assert found["num_batches_mean"] >= 1 and result["callback_ok"]
