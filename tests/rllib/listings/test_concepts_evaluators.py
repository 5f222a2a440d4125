"""A policy from scratch, whose experience evaluators gather in parallel."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest

from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.evaluation import PolicyEvaluator, SampleBatch
from lightning_rl.rllib.optimizers import AsyncSamplesOptimizer
from lightning_rl.rllib.policy.policy import Policy

pytestmark = pytest.mark.filterwarnings("ignore:.*(retired|out of date).*")


class CustomPolicy(Policy):
    """Example of a custom policy written from scratch.

    You might find it more convenient to extend TF/TorchPolicy instead
    for a real policy.
    """

    def __init__(self, observation_space, action_space, config):
        Policy.__init__(self, observation_space, action_space, config)
        # example parameter
        self.w = 1.0

    def compute_actions(
        self,
        obs_batch,
        state_batches,
        prev_action_batch=None,
        prev_reward_batch=None,
        info_batch=None,
        episodes=None,
        **kwargs,
    ):
        # return action batch, RNN states, extra values to include in batch
        return [self.action_space.sample() for _ in obs_batch], [], {}

    def learn_on_batch(self, samples):
        # implement your learning code here
        return {}  # return stats

    def get_weights(self):
        return {"w": self.w}

    def set_weights(self, weights):
        self.w = weights["w"]


@pytest.mark.ray
def test_evaluators_sample_and_take_the_weights() -> None:
    import ray

    # Setup policy and remote policy evaluation actors
    env = gym.make("CartPole-v1")
    policy: Any = CustomPolicy(env.observation_space, env.action_space, {})
    remote_evaluators = [
        PolicyEvaluator.as_remote().remote(lambda c: gym.make("CartPole-v1"), CustomPolicy) for _ in range(2)
    ]

    for turn in range(2):
        # Gather a batch of samples
        T1 = SampleBatch.concat_samples(ray.get([w.sample.remote() for w in remote_evaluators]))  # noqa: N806

        # Improve the policy using the T1 batch
        policy.learn_on_batch(T1)
        assert T1.count == 200
        policy.w = float(turn)

        # Broadcast weights to the policy evaluation workers
        weights = ray.put({"default_policy": policy.get_weights()})
        for w in remote_evaluators:
            w.set_weights.remote(weights)
    found = ray.get([w.get_weights.remote() for w in remote_evaluators])
    assert found == [{"default_policy": {"w": 1.0}}] * 2


@pytest.mark.ray
def test_an_optimizer_does_the_same() -> None:
    # Same setup as before
    local_evaluator = PolicyEvaluator(lambda c: gym.make("CartPole-v1"), CustomPolicy)
    remote_evaluators = [
        PolicyEvaluator.as_remote().remote(lambda c: gym.make("CartPole-v1"), CustomPolicy) for _ in range(2)
    ]

    # this optimizer implements the IMPALA architecture
    optimizer = AsyncSamplesOptimizer(local_evaluator, remote_evaluators, train_batch_size=500)

    for _ in range(2):
        optimizer.step()
    assert optimizer.stats()["num_steps_trained"] >= 1000


def test_a_trainer_trains_the_policy_from_scratch() -> None:
    trainer: Any = PPOTrainer.with_updates(default_policy=CustomPolicy)(env="CartPole-v1", config={"gamma": 0.9})
    result = trainer.train()
    trainer.stop()
    assert trainer.policy.w == 1.0 and trainer.policy.config["gamma"] == 0.9 and result["episode_reward_mean"] > 8
