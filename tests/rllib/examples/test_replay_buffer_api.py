"""replay_buffer_api: the section `replay_buffer_config` says how sequences are stored and drawn."""

from __future__ import annotations

import pytest

from lightning_rl.rllib.agents.dqn import R2D2Trainer
from tests.rllib.examples.training import train_until


@pytest.mark.parametrize("stop_reward", [0, pytest.param(50, marks=pytest.mark.slow)])
def test_r2d2_replays_sequences(stop_reward: float) -> None:
    replay_config = {
        "type": "MultiAgentReplayBuffer",
        "capacity": 50_000,
        "replay_batch_size": 32,
        "storage_unit": "sequences",
        "replay_sequence_length": 20,
        "replay_burn_in": 10,
        "learning_starts": 700,
    }
    config = {
        "env": "CartPole-v1",
        "framework": "torch",
        "num_workers": 0,
        "num_envs_per_worker": 4,
        "replay_buffer_config": replay_config,
        "model": {"use_lstm": True, "lstm_cell_size": 64, "max_seq_len": 20},
        "timesteps_per_iteration": 1000,
        "lr": 5e-4,
        "exploration_config": {"epsilon_timesteps": 10_000},
        "seed": 0,
    }
    trainer = R2D2Trainer(config=config)
    train_until(trainer, stop_reward, stop_iters=60)
    buffer = trainer.datamodule.source.buffer
    trainer.stop()
    assert buffer.length == 20 and buffer.burn_in == 10 and buffer.capacity == 50_000
