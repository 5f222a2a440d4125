"""What a policy has, and how its methods call each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from lightning_rl.rllib.agents.ppo import PPOTorchPolicy
from lightning_rl.rllib.policy.policy import Policy
from lightning_rl.rllib.policy.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE
from tests.rollouts.small_worker import small_worker


class Own(Policy):
    """compute_single_action calls compute_actions_from_input_dict there, which calls compute_actions."""

    def compute_actions(self, obs_batch, state_batches=None, **kwargs):
        return [1 for _ in obs_batch], [], {}

    def learn_on_batch(self, samples):
        return {}


def test_all_ways_of_acting_end_in_compute_actions() -> None:
    policy: Any = Own(Box(-1, 1, (4,)), Discrete(2), {"explore": False})
    batch = SampleBatch({SampleBatch.CUR_OBS: np.zeros((3, 4), np.float32)})
    assert policy.compute_actions_from_input_dict(batch) == ([1, 1, 1], [], {})
    action, state, info = policy.compute_single_action(np.zeros(4, np.float32), [], prev_action=0, prev_reward=0.0)
    assert (action, state, info) == (1, [], {}) and policy.global_timestep == 0
    assert policy.observation_space.shape == (4,) and policy.action_space_struct == Discrete(2)


def test_loaded_batches_are_learned_from() -> None:
    policy: Any = PPOTorchPolicy(*CARTPOLE.spaces(), {"lr": 0.01})
    assert policy.get_exploration_info() == {} and type(policy._create_exploration()) is type(policy.exploration)
    assert policy.load_batch_into_buffer(small_worker(policy).sample()) == policy.get_num_samples_loaded_into_buffer()
    before = policy.get_weights()
    assert np.isfinite(policy.learn_on_loaded_batch(0)["loss"])
    assert any((policy.get_weights()[name] != value).any() for name, value in before.items())
    gradients, info = policy.compute_gradients(small_worker(policy).sample())
    policy.apply_gradients(gradients)
    assert np.isfinite(info["loss"])
