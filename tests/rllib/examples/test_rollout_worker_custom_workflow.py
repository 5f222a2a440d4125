"""rollout_worker_custom_workflow: workers and a policy from scratch, without a trainer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lightning_rl.rllib.evaluation import RolloutWorker
from lightning_rl.rllib.evaluation.metrics import collect_metrics
from lightning_rl.rllib.policy.policy import Policy
from lightning_rl.rllib.policy.sample_batch import SampleBatch


class CustomPolicy(Policy):
    """Acts at random, and has a number for its weights."""

    def __init__(self, observation_space, action_space, config):
        super().__init__(observation_space, action_space, config)
        self.w = 1.0

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
        return np.array([self.action_space.sample() for _ in obs_batch]), [], {}

    def learn_on_batch(self, samples):
        return {}

    def update_some_value(self, w):
        self.w = w

    def get_weights(self):
        return {"w": self.w}

    def set_weights(self, weights):
        self.w = weights["w"]


@pytest.fixture
def ray() -> Iterator[Any]:
    ray = pytest.importorskip("ray", exc_type=ImportError)
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=2**27)
    try:
        yield ray
    finally:
        ray.shutdown()


@pytest.mark.ray(own_session=True)
def test_weights_go_out_and_samples_come_in(ray: Any) -> None:
    env = gym.make("CartPole-v1")
    policy = CustomPolicy(env.observation_space, env.action_space, {})
    workers = [RolloutWorker.as_remote().remote(lambda c: gym.make("CartPole-v1"), CustomPolicy) for _ in range(2)]
    for _ in range(3):
        weights = ray.put({"default_policy": policy.get_weights()})
        for w in workers:
            w.set_weights.remote(weights)
        before = ray.get([w.get_weights.remote() for w in workers])
        assert [each["default_policy"]["w"] for each in before] == [policy.w] * 2
        batch1 = SampleBatch.concat_samples(ray.get([w.sample.remote() for w in workers]))
        new_value = policy.w * 2.0
        for w in workers:
            w.for_policy.remote(lambda p, new_value=new_value: p.update_some_value(new_value))
        after = ray.get([w.get_weights.remote() for w in workers])
        assert [each["default_policy"]["w"] for each in after] == [new_value] * 2
        batch2 = SampleBatch.concat_samples(ray.get([w.sample.remote() for w in workers]))
        policy.learn_on_batch(batch1)
        policy.update_some_value(float(sum(batch2["rewards"])))
        assert policy.w > 100
        metrics = collect_metrics(remote_workers=workers)
        assert 9 < metrics["episode_len_mean"] == metrics["episode_reward_mean"] < 60
