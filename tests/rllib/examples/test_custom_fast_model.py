"""custom_fast_model: images and a model of one weight, as in RLlib's microbenchmarks of IMPALA."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from lightning_rl.rllib.agents.impala import ImpalaTrainer
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.models.torch.misc import SlimFC
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2
from lightning_rl.rllib.utils.annotations import override


class FastImageEnv:
    def __init__(self, config):
        self.zeros = np.zeros((84, 84, 4), np.float32)
        self.action_space = Discrete(2)
        self.observation_space = Box(0.0, 1.0, shape=(84, 84, 4), dtype=np.float32)

    def reset(self):
        self.i = 0
        return self.zeros

    def step(self, action):
        self.i += 1
        return self.zeros, 1, self.i > 100, {}


class TorchFastModel(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.bias = nn.Parameter(torch.tensor([0.0], dtype=torch.float32))
        self.dummy_layer = SlimFC(1, 1)
        self._output = None

    @override(TorchModelV2)
    def forward(self, input_dict, state, seq_lens):
        self._output = self.bias + torch.zeros(size=(input_dict["obs"].shape[0], self.num_outputs))
        return self._output, []

    @override(TorchModelV2)
    def value_function(self):
        assert self._output is not None, "must call forward first!"
        return torch.reshape(torch.mean(self._output, -1), [-1])


def test_impala_learns_the_one_weight() -> None:
    """Every return is positive, so the weight, which is the value, grows."""
    ModelCatalog.register_custom_model("fast_model", TorchFastModel)
    config = {
        "env": FastImageEnv,
        "compress_observations": True,
        "model": {"custom_model": "fast_model"},
        "num_gpus": 0,
        "num_workers": 0,
        "num_envs_per_worker": 10,
        "num_multi_gpu_tower_stacks": 1,
        "num_aggregation_workers": 1,
        "broadcast_interval": 50,
        "rollout_fragment_length": 20,
        "train_batch_size": 200,
        "fake_sampler": False,
        "framework": "torch",
    }
    trainer = ImpalaTrainer(config=config)
    result = [trainer.train() for _ in range(5)][-1]
    weights = trainer.get_weights()["default_policy"]
    trainer.stop()
    assert weights["model.bias"] > 0 and result["timesteps_total"] >= 600
