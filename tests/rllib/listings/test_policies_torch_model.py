"""A custom model is registered, and a trainer's config names it."""

from __future__ import annotations

from typing import Any

from torch import nn

from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2


class MyModelClass(TorchModelV2, nn.Module):  # nn.Module has to be there
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self._hidden_layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
        self._logits = nn.Linear(16, num_outputs)  # policy output
        self._value_branch = nn.Linear(16, 1)  # value output

    def forward(self, input_dict, state, seq_lens):
        features = self._hidden_layers(input_dict["obs"])
        self._value = self._value_branch(features)
        return self._logits(features), state

    def value_function(self):
        return self._value.squeeze(1)


def test_the_registered_model_learns() -> None:
    ModelCatalog.register_custom_model("MYmodel", MyModelClass)
    config = {"model": {"custom_model": "MYmodel"}, "train_batch_size": 256, "sgd_minibatch_size": 64, "lr": 3e-3}
    trainer: Any = PPOTrainer(env="CartPole-v1", config=config)
    results = [trainer.train() for _ in range(8)]
    trainer.stop()
    assert isinstance(trainer.policy.model, MyModelClass)
    assert results[-1]["episode_reward_mean"] > results[0]["episode_reward_mean"]
