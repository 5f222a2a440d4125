"""batch_norm_model: a model whose batch norm knows by `is_training` whether it learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.models.torch.misc import SlimFC, normc_initializer
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2
from lightning_rl.rllib.utils.annotations import override
from tests.rllib.examples.training import train_until


class TorchBatchNormModel(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, **kwargs):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        layers, size = [], int(np.prod(obs_space.shape))
        for width in (256, 256):
            first = SlimFC(in_size=size, out_size=width, initializer=normc_initializer(1.0), activation_fn=nn.ReLU)
            layers += [first, nn.BatchNorm1d(width)]
            size = width
        self._logits = SlimFC(
            in_size=size, out_size=self.num_outputs, initializer=normc_initializer(0.01), activation_fn=None
        )
        self._value_branch = SlimFC(in_size=size, out_size=1, initializer=normc_initializer(1.0), activation_fn=None)
        self._hidden_layers = nn.Sequential(*layers)
        self._hidden_out = None

    @override(TorchModelV2)
    def forward(self, input_dict, state, seq_lens):
        self._hidden_layers.train(mode=input_dict["is_training"])
        self._hidden_out = self._hidden_layers(input_dict["obs"])
        return self._logits(self._hidden_out), []

    @override(TorchModelV2)
    def value_function(self):
        assert self._hidden_out is not None, "must call forward first!"
        return torch.reshape(self._value_branch(self._hidden_out), [-1])


@pytest.mark.parametrize("stop_reward", [50, pytest.param(150, marks=pytest.mark.slow)])
def test_it_learns(stop_reward: float) -> None:
    ModelCatalog.register_custom_model("bn_model", TorchBatchNormModel)
    config = {"env": "CartPole-v0", "model": {"custom_model": "bn_model"}, "num_workers": 0, "framework": "torch"}
    trainer = PPOTrainer(config=config)
    train_until(trainer, stop_reward, stop_iters=200)
    trainer.stop()
