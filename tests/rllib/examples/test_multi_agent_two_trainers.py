"""multi_agent_two_trainers: PPO and DQN learn a policy each in the same environment, and swap weights."""

from __future__ import annotations

import gymnasium as gym
import pytest

from lightning_rl.rllib import register_env
from lightning_rl.rllib.agents.dqn import DQNTorchPolicy, DQNTrainer
from lightning_rl.rllib.agents.ppo import PPOTorchPolicy, PPOTrainer
from tests.rllib.examples.envs import MultiAgentCartPole


def policy_mapping_fn(agent_id):
    return "ppo_policy" if agent_id % 2 == 0 else "dqn_policy"


@pytest.mark.parametrize("stop_reward", [20, pytest.param(50, marks=pytest.mark.slow)])
def test_both_get_better_and_have_each_others_weights(stop_reward: float) -> None:
    """The mean of an episode is the sum of four agents; the reward is asked of each policy's two."""
    register_env("multi_agent_cartpole", lambda _: MultiAgentCartPole({"num_agents": 4}))
    single_env = gym.make("CartPole-v1")
    spaces = single_env.observation_space, single_env.action_space
    policies = {
        "ppo_policy": (PPOTorchPolicy, *spaces, {}),
        "dqn_policy": (DQNTorchPolicy, *spaces, {}),
    }
    ppo_trainer = PPOTrainer(
        env="multi_agent_cartpole",
        config={
            "multiagent": {
                "policies": policies,
                "policy_mapping_fn": policy_mapping_fn,
                "policies_to_train": ["ppo_policy"],
            },
            "observation_filter": "NoFilter",
            "framework": "torch",
        },
    )
    dqn_trainer = DQNTrainer(
        env="multi_agent_cartpole",
        config={
            "multiagent": {
                "policies": policies,
                "policy_mapping_fn": policy_mapping_fn,
                "policies_to_train": ["dqn_policy"],
            },
            "gamma": 0.95,
            "n_step": 3,
            "timesteps_per_iteration": 1000,
            "framework": "torch",
        },
    )
    for _ in range(60):
        result_dqn, result_ppo = dqn_trainer.train(), ppo_trainer.train()
        means = result_dqn["policy_reward_mean"]["dqn_policy"], result_ppo["policy_reward_mean"]["ppo_policy"]
        dqn_trainer.set_weights(ppo_trainer.get_weights(["ppo_policy"]))
        ppo_trainer.set_weights(dqn_trainer.get_weights(["dqn_policy"]))
        if min(means) > stop_reward:
            break
    both = [trainer.get_weights() for trainer in (ppo_trainer, dqn_trainer)]
    ppo_trainer.stop()
    dqn_trainer.stop()
    assert min(means) > stop_reward, means
    for policy_id in policies:
        ours, theirs = (weights[policy_id] for weights in both)
        assert all((ours[name] == theirs[name]).all() for name in ours)
