"""A custom model with options, trained by PPO after `ray.init`."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

import lightning_rl.rllib.agents.ppo as ppo
from lightning_rl.rllib.agents import a3c
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2

pytestmark = pytest.mark.filterwarnings("ignore:.*(retired|out of date).*")


class MyModelClass(TorchModelV2, nn.Module):
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


class CustomTorchModel(nn.Module, TorchModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        nn.Module.__init__(self)
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        self.width = model_config["custom_options"]["width"]
        self.layers = nn.Sequential(nn.Linear(4, self.width), nn.ReLU(), nn.Linear(self.width, num_outputs + 1))

    def forward(self, input_dict, state, seq_lens):
        self.outputs = self.layers(input_dict["obs"])
        return self.outputs[:, :-1], state

    def value_function(self):
        return self.outputs[:, -1]


@pytest.mark.ray(own_session=True)
def test_ppo_trains_the_registered_model_with_ray_started() -> None:
    import ray

    ModelCatalog.register_custom_model("my_model", MyModelClass)
    ray.init()
    try:
        trainer: Any = ppo.PPOTrainer(
            env="CartPole-v0",
            config={
                "model": {
                    "custom_model": "my_model",
                    "custom_options": {},  # extra options to pass to your model
                },
                "train_batch_size": 256,
            },
        )
        assert isinstance(trainer.policy.model, MyModelClass) and trainer.train()["training_iteration"] == 1
        trainer.stop()
    finally:
        ray.shutdown()


def test_a2c_trains_a_torch_model_with_options() -> None:
    ModelCatalog.register_custom_model("my_torch_model", CustomTorchModel)
    trainer: Any = a3c.A2CTrainer(
        env="CartPole-v0",
        config={
            "use_pytorch": True,
            "model": {
                "custom_model": "my_torch_model",
                "custom_options": {"width": 9},  # extra options to pass to your model
            },
        },
    )
    assert trainer.policy.model.width == 9 and trainer.train()["timesteps_total"] > 0
    trainer.stop()
