"""parallel_evaluation_and_training: an evaluation plays in workers of its own while the trainer trains."""

from __future__ import annotations

import pytest

from lightning_rl.rllib.agents.callbacks import DefaultCallbacks
from lightning_rl.rllib.agents.ppo import PPOTrainer

seen: list[int] = []


class AssertEvalCallback(DefaultCallbacks):
    def on_train_result(self, *, trainer, result, **kwargs):
        if "evaluation" not in result:
            return
        hist_stats = result["evaluation"]["hist_stats"]
        num_episodes_done = len(hist_stats["episode_lengths"])
        if isinstance(trainer.config["evaluation_duration"], int):
            assert num_episodes_done == trainer.config["evaluation_duration"]
        else:
            assert trainer.config["evaluation_duration"] == "auto"
            assert num_episodes_done >= trainer.config["evaluation_num_workers"]
        assert result["evaluation"]["timesteps_this_iter"] == sum(hist_stats["episode_lengths"])
        seen.append(num_episodes_done)


@pytest.mark.process
@pytest.mark.ray
@pytest.mark.filterwarnings("ignore:.*'evaluation_duration'='auto'.*")
@pytest.mark.parametrize("evaluation_duration", [13, "auto"])
def test_every_second_result_has_an_evaluation(evaluation_duration) -> None:
    seen.clear()
    config = {
        "env": "CartPole-v1",
        "framework": "torch",
        "train_batch_size": 400,
        "evaluation_parallel_to_training": True,
        "evaluation_num_workers": 1,
        "evaluation_interval": 2,
        "evaluation_duration": evaluation_duration,
        "evaluation_duration_unit": "episodes",
        "evaluation_config": {"explore": False},
        "callbacks": AssertEvalCallback,
    }
    trainer = PPOTrainer(config=config)
    results = [trainer.train() for _ in range(4)]
    trainer.stop()
    assert ["evaluation" in result for result in results] == [False, True, False, True] and len(seen) == 2
