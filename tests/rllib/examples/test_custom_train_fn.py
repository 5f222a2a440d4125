"""custom_train_fn: a second trainer goes on from the first with another learning rate."""

from __future__ import annotations

import pytest

from lightning_rl.rllib.agents.ppo import PPOTrainer


def my_train_fn(config, reporter):
    iterations = config.pop("train-iterations", 10)
    config["lr"] = 0.01
    agent1 = PPOTrainer(env="CartPole-v1", config=config)
    for _ in range(iterations):
        result = agent1.train()
        result["phase"] = 1
        reporter(**result)
        phase1_time = result["timesteps_total"]
    state = agent1.save()
    agent1.stop()

    config["lr"] = 0.0001
    agent2 = PPOTrainer(env="CartPole-v1", config=config)
    agent2.restore(state)
    for _ in range(iterations):
        result = agent2.train()
        result["phase"] = 2
        reporter(**result)
    agent2.stop()
    return phase1_time


def test_the_second_phase_has_the_steps_of_the_first_and_its_own_rate() -> None:
    reports = []
    config = {"train-iterations": 2, "num_workers": 0, "framework": "torch"}
    phase1_time = my_train_fn(config, reporter=lambda **result: reports.append(result))
    rates = [report["info"]["learner"]["default_policy"]["cur_lr"] for report in reports]
    assert [report["phase"] for report in reports] == [1, 1, 2, 2]
    assert rates == pytest.approx([0.01, 0.01, 0.0001, 0.0001])
    assert reports[1]["timesteps_total"] == phase1_time < reports[2]["timesteps_total"]
