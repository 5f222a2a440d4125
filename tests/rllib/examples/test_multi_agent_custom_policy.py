"""multi_agent_custom_policy: a policy that learns beside one that acts at random."""

from __future__ import annotations

import gymnasium as gym
import pytest

from lightning_rl.rllib import register_env
from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.policy.policy import Policy, PolicySpec
from tests.rllib.examples.envs import MultiAgentCartPole


class RandomPolicy(Policy):
    """Hand-coded policy that returns random actions."""

    def compute_actions(
        self,
        obs_batch,
        state_batches=None,
        prev_action_batch=None,
        prev_reward_batch=None,
        info_batch=None,
        episodes=None,
        **kwargs,
    ):
        return [self.action_space.sample() for _ in obs_batch], [], {}

    def learn_on_batch(self, samples):
        return {}

    def get_weights(self):
        pass

    def set_weights(self, weights):
        pass


@pytest.mark.parametrize("reward", [80, pytest.param(150, marks=pytest.mark.slow)])
def test_the_policy_that_learns_gets_better_than_the_random_one(reward: float) -> None:
    register_env("multi_agent_cartpole", lambda _: MultiAgentCartPole({"num_agents": 4}))
    single_env = gym.make("CartPole-v1")
    config = {
        "env": "multi_agent_cartpole",
        "multiagent": {
            "policies": {
                "learnable_policy": PolicySpec(
                    None, single_env.observation_space, single_env.action_space, {"framework": "torch"}
                ),
                "random": PolicySpec(policy_class=RandomPolicy),
            },
            "policy_mapping_fn": lambda aid, **kwargs: ["learnable_policy", "random"][aid % 2],
            "policies_to_train": ["learnable_policy"],
        },
        "framework": "torch",
    }
    trainer = PPOTrainer(config=config)
    for _ in range(60):
        means = trainer.train()["policy_reward_mean"]
        if means["learnable_policy"] >= reward:
            break
    trainer.stop()
    assert means["learnable_policy"] >= reward and means["random"] < 35, means
