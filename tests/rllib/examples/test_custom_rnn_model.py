"""custom_rnn_model: an LSTM of the program's own that remembers what it saw."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from lightning_rl.rllib import register_env
from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.models.preprocessors import get_preprocessor
from lightning_rl.rllib.models.torch.recurrent_net import RecurrentNetwork as TorchRNN
from lightning_rl.rllib.utils.annotations import override
from tests.rllib.examples.envs import RepeatAfterMeEnv
from tests.rllib.examples.training import train_until


class TorchRNNModel(TorchRNN, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, fc_size=64, lstm_state_size=64):
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.obs_size = get_preprocessor(obs_space)(obs_space).size
        self.fc_size, self.lstm_state_size = fc_size, lstm_state_size
        self.fc1 = nn.Linear(self.obs_size, self.fc_size)
        self.lstm = nn.LSTM(self.fc_size, self.lstm_state_size, batch_first=True)
        self.action_branch = nn.Linear(self.lstm_state_size, num_outputs)
        self.value_branch = nn.Linear(self.lstm_state_size, 1)
        self._features = None

    @override(TorchRNN)
    def get_initial_state(self):
        return [self.fc1.weight.new(1, self.lstm_state_size).zero_().squeeze(0) for _ in range(2)]

    @override(TorchRNN)
    def value_function(self):
        assert self._features is not None, "must call forward() first"
        return torch.reshape(self.value_branch(self._features), [-1])

    @override(TorchRNN)
    def forward_rnn(self, inputs, state, seq_lens):
        x = nn.functional.relu(self.fc1(inputs))
        self._features, [h, c] = self.lstm(x, [torch.unsqueeze(state[0], 0), torch.unsqueeze(state[1], 0)])
        return self.action_branch(self._features), [torch.squeeze(h, 0), torch.squeeze(c, 0)]


@pytest.mark.parametrize("stop_reward", [20, pytest.param(90, marks=pytest.mark.slow)])
def test_it_repeats_what_was_shown_two_steps_ago(stop_reward: float) -> None:
    """A policy without memory is right half of the time: 0 on average."""
    ModelCatalog.register_custom_model("rnn", TorchRNNModel)
    register_env("RepeatAfterMeEnv", lambda c: RepeatAfterMeEnv(c))
    config = {
        "env": "RepeatAfterMeEnv",
        "env_config": {"repeat_delay": 2},
        "gamma": 0.9,
        "num_workers": 0,
        "num_envs_per_worker": 20,
        "entropy_coeff": 0.001,
        "num_sgd_iter": 5,
        "vf_loss_coeff": 1e-5,
        "model": {"custom_model": "rnn", "max_seq_len": 20, "_time_major": True},
        "framework": "torch",
    }
    trainer = PPOTrainer(config=config)
    train_until(trainer, stop_reward, stop_iters=100)
    obs_space = trainer.get_policy().observation_space
    action, state, _ = trainer.compute_single_action(
        obs_space.sample(), state=[np.zeros(64, np.float32), np.zeros(64, np.float32)]
    )
    trainer.stop()
    assert action in (0, 1) and [part.shape for part in state] == [(64,), (64,)]
