"""lstm_auto_wrapping: `use_lstm` puts an LSTM behind a custom model without heads."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import lightning_rl.rllib.agents.ppo as ppo
from lightning_rl.rllib.models.catalog import ModelCatalog
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2


class MyCustomModel(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs = int(np.prod(self.obs_space.shape))
        self._last_batch_size = None

    def forward(self, input_dict, state, seq_lens):
        obs = input_dict["obs_flat"]
        self._last_batch_size = obs.shape[0]
        return obs * 2.0, []

    def value_function(self):
        return torch.from_numpy(np.zeros(shape=(self._last_batch_size,)))


def test_the_policy_is_recurrent_and_learns() -> None:
    ModelCatalog.register_custom_model("my_torch_model", MyCustomModel)
    trainer = ppo.PPOTrainer(
        env="CartPole-v0",
        config={
            "framework": "torch",
            "model": {
                "use_lstm": True,
                "lstm_cell_size": 64,
                "custom_model": "my_torch_model",
                "custom_model_config": {},
            },
        },
    )
    rewards = [trainer.train()["episode_reward_mean"] for _ in range(4)]
    state = trainer.get_policy().get_initial_state()
    trainer.stop()
    assert [part.shape for part in state] == [(64,), (64,)] and rewards[-1] > rewards[0]
