"""two_step_game: policy gradients, and QMIX on grouped agents, in QMIX's matrix game."""

from __future__ import annotations

import pytest
from gymnasium.spaces import Dict, MultiDiscrete, Tuple

from lightning_rl.rllib import register_env
from lightning_rl.rllib.agents.pg import PGTrainer
from lightning_rl.rllib.agents.qmix import QMixTrainer
from lightning_rl.rllib.env.multi_agent_env import ENV_STATE
from tests.rllib.examples.envs import TwoStepGame
from tests.rllib.examples.training import train_until


def test_policy_gradients_find_the_safe_seven() -> None:
    trainer = PGTrainer(config={"env": TwoStepGame, "framework": "torch", "lr": 3e-3})
    train_until(trainer, stop_reward=6.8, stop_iters=200)
    trainer.stop()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("stop_reward", [5.5, pytest.param(8.0, marks=pytest.mark.slow)])
def test_qmix_finds_the_eight_that_needs_both(stop_reward: float) -> None:
    """Random actions get 4.75 on average."""
    grouping = {"group_1": [0, 1]}
    single = Dict({"obs": MultiDiscrete([2, 2, 2, 3]), ENV_STATE: MultiDiscrete([2, 2, 2])})
    obs_space, act_space = Tuple([single, single]), Tuple([TwoStepGame.action_space, TwoStepGame.action_space])
    register_env(
        "grouped_twostep",
        lambda config: TwoStepGame(config).with_agent_groups(grouping, obs_space=obs_space, act_space=act_space),
    )
    config = {
        "rollout_fragment_length": 4,
        "train_batch_size": 32,
        "exploration_config": {"final_epsilon": 0.0},
        "timesteps_per_iteration": 1000,
        "num_workers": 0,
        "mixer": "qmix",
        "env_config": {"separate_state_space": True, "one_hot_state_encoding": True},
        "framework": "torch",
        "env": "grouped_twostep",
    }
    trainer = QMixTrainer(config=config)
    train_until(trainer, stop_reward, stop_iters=70)
    trainer.stop()
