"""preprocessing_disabled: with `_disable_preprocessor_api`, a model reads nested observations as they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from torch import nn

from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2

OBS_SPACE = Dict(
    {
        "a": Discrete(2),
        "b": Dict({"ba": Discrete(4), "bb": Box(-1.0, 1.0, (2, 3), dtype=np.float32)}),
        "c": Tuple((MultiDiscrete((2, 3)), Discrete(2))),
        "d": Box(-1, 1, (2,), dtype=np.int32),
    }
)


class RandomEnv:
    """Random observations of any space; reward 1 for the action that equals "a"."""

    def __init__(self, config):
        self.observation_space, self.action_space = config["observation_space"], config["action_space"]

    def reset(self):
        self.steps, self.obs = 0, self.observation_space.sample()
        return self.obs

    def step(self, action):
        reward = float(action == self.obs["a"])
        self.steps, self.obs = self.steps + 1, self.observation_space.sample()
        return self.obs, reward, self.steps >= 10, {}


class ReadsNestedObs(TorchModelV2, nn.Module):
    """Embeds the discrete parts itself."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        assert isinstance(obs_space, Dict) and model_config["_disable_preprocessor_api"]
        self.a, self.ba = nn.Embedding(obs_space["a"].n, 8), nn.Embedding(obs_space["b"]["ba"].n, 8)
        self.layers, self.values = nn.Linear(16 + 6, num_outputs), nn.Linear(22, 1)

    def forward(self, input_dict, state, seq_lens):
        obs = input_dict["obs"]
        assert obs["c"][0].shape[1:] == (2,) and obs["d"].dtype == torch.int32
        parts = [self.a(obs["a"].long()), self.ba(obs["b"]["ba"].long()), obs["b"]["bb"].flatten(1)]
        self.features = torch.cat(parts, dim=1)
        return self.layers(self.features), state

    def value_function(self):
        return self.values(self.features).squeeze(1)


@pytest.mark.parametrize("model", [{"fcnet_hiddens": [64]}, {"custom_model": "reads_nested_obs"}])
def test_a_policy_learns_from_nested_observations(model: dict) -> None:
    """A random policy gets 5 of 10."""
    ModelCatalog.register_custom_model("reads_nested_obs", ReadsNestedObs)
    config = {
        "env": RandomEnv,
        "env_config": {"observation_space": OBS_SPACE, "action_space": Discrete(2)},
        "_disable_preprocessor_api": True,
        "model": model,
        "train_batch_size": 400,
        "num_envs_per_worker": 4,
        "lr": 5e-3,
        "seed": 0,
        "framework": "torch",
    }
    trainer = PPOTrainer(config=config)
    rewards = [trainer.train()["episode_reward_mean"] for _ in range(12)]
    trainer.stop()
    assert max(rewards) > 7
