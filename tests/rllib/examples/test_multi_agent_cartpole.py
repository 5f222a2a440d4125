"""multi_agent_cartpole: several agents and policies, whose models share a layer."""

from __future__ import annotations

import random

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.models.torch.misc import SlimFC
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2
from lightning_rl.rllib.policy.policy import PolicySpec
from lightning_rl.rllib.utils.annotations import override
from tests.rllib.examples.envs import MultiAgentCartPole
from tests.rllib.examples.training import train_until

TORCH_GLOBAL_SHARED_LAYER = SlimFC(64, 64, activation_fn=nn.ReLU, initializer=nn.init.xavier_uniform_)


class TorchSharedWeightsModel(TorchModelV2, nn.Module):
    """Its middle layer is that of all models."""

    def __init__(self, observation_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, observation_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.first_layer = SlimFC(
            int(np.prod(observation_space.shape)), 64, activation_fn=nn.ReLU, initializer=nn.init.xavier_uniform_
        )
        self.last_layer = SlimFC(64, self.num_outputs, activation_fn=None, initializer=nn.init.xavier_uniform_)
        self.vf = SlimFC(64, 1, activation_fn=None, initializer=nn.init.xavier_uniform_)
        self._output = None

    @override(TorchModelV2)
    def forward(self, input_dict, state, seq_lens):
        out = self.first_layer(input_dict["obs"])
        self._output = TORCH_GLOBAL_SHARED_LAYER(out)
        return self.last_layer(self._output), []

    @override(TorchModelV2)
    def value_function(self):
        assert self._output is not None, "must call forward first!"
        return torch.reshape(self.vf(self._output), [-1])


@pytest.mark.parametrize("stop_reward", [180, pytest.param(600, marks=pytest.mark.slow)])
def test_four_agents_of_two_policies_learn(stop_reward: float) -> None:
    """The mean of an episode is the sum of four agents: 600 is 150 for each."""
    ModelCatalog.register_custom_model("model1", TorchSharedWeightsModel)
    ModelCatalog.register_custom_model("model2", TorchSharedWeightsModel)
    single_env = gym.make("CartPole-v1")

    def gen_policy(i):
        config = {
            "model": {"custom_model": ["model1", "model2"][i % 2]},
            "gamma": random.choice([0.95, 0.99]),
        }
        return PolicySpec(None, single_env.observation_space, single_env.action_space, config)

    policies = {f"policy_{i}": gen_policy(i) for i in range(2)}
    policy_ids = list(policies)

    def policy_mapping_fn(agent_id, episode, **kwargs):
        return random.choice(policy_ids)

    config = {
        "env": MultiAgentCartPole,
        "env_config": {"num_agents": 4},
        "simple_optimizer": False,
        "num_sgd_iter": 10,
        "multiagent": {"policies": policies, "policy_mapping_fn": policy_mapping_fn},
        "framework": "torch",
    }
    trainer = PPOTrainer(config=config)
    result = train_until(trainer, stop_reward, stop_iters=200)
    trainer.stop()
    assert set(result["policy_reward_mean"]) == set(policy_ids)
