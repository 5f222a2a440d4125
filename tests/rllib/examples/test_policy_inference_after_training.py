"""policy_inference_after_training, also with an LSTM: episodes by hand with a trainer that is restored."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from lightning_rl.rllib.agents.ppo import PPOTrainer


@pytest.mark.parametrize("use_lstm", [False, True])
def test_a_restored_trainer_plays_as_well_as_it_was_trained(use_lstm: bool, tmp_path) -> None:
    """The lake without slips: 1 an episode that reaches the goal."""
    lake = {"is_slippery": False}
    model = {"use_lstm": use_lstm, "lstm_cell_size": 32, "lstm_use_prev_action": use_lstm}
    config = {
        "env": "FrozenLake-v1",
        "env_config": lake,
        "model": model if use_lstm else {},
        "framework": "torch",
        "entropy_coeff": 0.01,
        "lr": 3e-3,
        "seed": 1,
    }
    trainer = PPOTrainer(config=config)
    for _ in range(40):
        if trainer.train()["episode_reward_mean"] >= 0.8:
            break
    checkpoint = trainer.save(str(tmp_path))
    trainer.stop()

    trainer = PPOTrainer(config=config)
    trainer.restore(checkpoint)
    env = gym.make("FrozenLake-v1", **lake)
    init_state = [np.zeros([32], np.float32) for _ in range(2)] if use_lstm else None
    total = 0.0
    for _ in range(10):
        (obs, _), done, state, prev_a = env.reset(), False, init_state, 0
        while not done:
            if use_lstm:
                a, state, _ = trainer.compute_single_action(
                    observation=obs, state=state, prev_action=prev_a, explore=False, policy_id="default_policy"
                )
                prev_a = a
            else:
                a = trainer.compute_single_action(observation=obs, explore=False, policy_id="default_policy")
            obs, reward, terminated, truncated, _ = env.step(a)
            done, total = terminated or truncated, total + reward
    trainer.stop()
    assert total == 10
