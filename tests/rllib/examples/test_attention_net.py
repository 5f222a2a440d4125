"""attention_net: GTrXL by the keys of the model remembers what an LSTM would."""

from __future__ import annotations

import pytest

from lightning_rl.rllib.agents.ppo import PPOTrainer
from tests.rllib.examples.envs import RepeatAfterMeEnv
from tests.rllib.examples.training import train_until


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "stop_reward", [pytest.param(20, marks=pytest.mark.every), pytest.param(80, marks=pytest.mark.slow)]
)
def test_it_repeats_what_was_shown_two_steps_ago(stop_reward: float) -> None:
    config = {
        "env": RepeatAfterMeEnv,
        "env_config": {"repeat_delay": 2},
        "gamma": 0.99,
        "num_workers": 0,
        "num_envs_per_worker": 20,
        "entropy_coeff": 0.001,
        "num_sgd_iter": 5,
        "vf_loss_coeff": 1e-5,
        "model": {
            "use_attention": True,
            "max_seq_len": 10,
            "attention_num_transformer_units": 1,
            "attention_dim": 32,
            "attention_memory_inference": 10,
            "attention_memory_training": 10,
            "attention_num_heads": 1,
            "attention_head_dim": 32,
            "attention_position_wise_mlp_dim": 32,
        },
        "framework": "torch",
    }
    trainer = PPOTrainer(config=config)
    train_until(trainer, stop_reward, stop_iters=200)
    trainer.stop()
