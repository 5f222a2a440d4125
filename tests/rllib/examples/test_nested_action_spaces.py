"""nested_action_spaces: observations and actions that are dicts of tuples, boxes and discrete parts."""

from __future__ import annotations

import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from lightning_rl.rllib import register_env
from lightning_rl.rllib.agents.ppo import PPOTrainer
from tests.rllib.examples.envs import NestedSpaceRepeatAfterMeEnv
from tests.rllib.examples.training import train_until


@pytest.mark.parametrize("stop_reward", [-700, pytest.param(-400, marks=pytest.mark.slow)])
def test_every_part_of_the_action_follows_the_observation(stop_reward: float) -> None:
    """Random actions get −1040; the original's 0 is the maximum, which no distribution of some width reaches."""
    register_env("NestedSpaceRepeatAfterMeEnv", lambda c: NestedSpaceRepeatAfterMeEnv(c))
    parts = {"d": Box(-10.0, 10.0, ()), "e": Discrete(2)}
    config = {
        "env": "NestedSpaceRepeatAfterMeEnv",
        "env_config": {
            "space": Dict({"a": Tuple([Dict(parts)]), "b": Box(-10.0, 10.0, (2,)), "c": Discrete(4)}),
        },
        "entropy_coeff": 0.00005,
        "gamma": 0.0,
        "lr": 0.0005,
        "num_envs_per_worker": 20,
        "num_sgd_iter": 4,
        "num_workers": 0,
        "vf_loss_coeff": 0.01,
        "framework": "torch",
    }
    trainer = PPOTrainer(config=config)
    train_until(trainer, stop_reward, stop_iters=100)
    trainer.stop()
