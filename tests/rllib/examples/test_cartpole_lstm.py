"""cartpole_lstm: the built-in LSTM, and the last action and reward as its inputs, where velocities are hidden."""

from __future__ import annotations

import pytest

from lightning_rl.rllib import register_env
from lightning_rl.rllib.agents.ppo import PPOTrainer
from tests.rllib.examples.envs import StatelessCartPole
from tests.rllib.examples.training import train_until


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("use_prev_action_reward", "stop_reward"),
    [(False, 55), *(pytest.param(each, 150, marks=pytest.mark.slow) for each in (False, True))],
)
def test_it_balances_without_velocities(use_prev_action_reward: bool, stop_reward: float) -> None:
    """Without memory about 45 is what can be reached."""
    register_env("cartpole_stateless", lambda _: StatelessCartPole())
    config = {
        "env": "cartpole_stateless",
        "num_sgd_iter": 5,
        "vf_share_layers": True,
        "vf_loss_coeff": 0.0001,
        "model": {"use_lstm": True, "lstm_use_prev_action_reward": use_prev_action_reward},
        "use_pytorch": True,
    }
    trainer = PPOTrainer(config=config)
    train_until(trainer, stop_reward, stop_iters=200)
    trainer.stop()
