"""Two equivalent ways of training: the trainer, and the command line."""

from __future__ import annotations

import pytest

from lightning_rl.rllib import __main__ as command_line
from lightning_rl.rllib.agents.ppo import PPOTrainer

pytestmark = pytest.mark.filterwarnings("ignore:.*(retired|out of date).*")


def test_a_trainer_prints_its_results(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = PPOTrainer(env="CartPole-v0", config={"train_batch_size": 1000})
    for _ in range(1):
        print(trainer.train())
    trainer.stop()
    assert "episode_reward_mean" in capsys.readouterr().out


def test_the_same_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """`rllib train` there; --stop is added, because there it has no end."""
    command = ["train", "--run=PPO", "--env=CartPole-v0", '--config={"train_batch_size": 400}']
    command_line.main([*command, '--stop={"training_iteration": 1}'])
    assert "iteration 1: 400 steps" in capsys.readouterr().out
