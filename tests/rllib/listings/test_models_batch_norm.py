"""Batch normalization that follows `input_dict["is_training"]`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2


class BatchNormModel(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.layer, self.norm = nn.Linear(4, 16), nn.BatchNorm1d(16)
        self.logits, self.values = nn.Linear(16, num_outputs), nn.Linear(16, 1)
        self.modes: list[bool] = []

    def forward(self, input_dict, state, seq_lens):
        self.modes.append(bool(input_dict["is_training"]))
        self.norm.train(mode=self.modes[-1])
        self.features = torch.tanh(self.norm(self.layer(input_dict["obs"])))
        return self.logits(self.features), state

    def value_function(self):
        return self.values(self.features).squeeze(1)


def test_statistics_are_updated_by_learning_and_used_by_acting() -> None:
    config = {"model": {"custom_model": BatchNormModel}, "train_batch_size": 64, "num_sgd_iter": 1}
    trainer: Any = PPOTrainer(env="CartPole-v1", config={**config, "sgd_minibatch_size": 64})
    model = trainer.policy.model
    before = model.norm.num_batches_tracked.item()
    trainer.train()
    steps = trainer.policy.gradient_steps
    trainer.stop()
    assert set(model.modes) == {True, False} and model.norm.num_batches_tracked.item() - before == steps > 0
