"""A recurrent model of one's own: its constructor, `get_initial_state` and `forward_rnn`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.models.torch.recurrent_net import RecurrentNetwork
from lightning_rl.rllib.utils.annotations import override


class MyRNN(RecurrentNetwork, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, fc_size=8, lstm_state_size=12):
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.lstm_state_size = lstm_state_size
        self.fc1 = nn.Linear(obs_space.shape[0], fc_size)
        self.lstm = nn.LSTM(fc_size, lstm_state_size, batch_first=True)
        self.action_branch, self.value_branch = nn.Linear(lstm_state_size, num_outputs), nn.Linear(lstm_state_size, 1)

    @override(RecurrentNetwork)
    def get_initial_state(self):
        # Place hidden states on same device as model.
        return [self.fc1.weight.new(1, self.lstm_state_size).zero_().squeeze(0) for _ in range(2)]

    @override(RecurrentNetwork)
    def value_function(self):
        return torch.reshape(self.value_branch(self._features), [-1])

    @override(RecurrentNetwork)
    def forward_rnn(self, inputs, state, seq_lens):
        x = nn.functional.relu(self.fc1(inputs))
        self._features, [h, c] = self.lstm(x, [torch.unsqueeze(state[0], 0), torch.unsqueeze(state[1], 0)])
        return self.action_branch(self._features), [torch.squeeze(h, 0), torch.squeeze(c, 0)]


def test_it_learns_from_sequences_and_keeps_its_state_from_step_to_step() -> None:
    ModelCatalog.register_custom_model("rnn", MyRNN)
    model = {"custom_model": "rnn", "max_seq_len": 8, "custom_model_config": {"fc_size": 6}}
    trainer: Any = PPOTrainer(env="CartPole-v1", config={"model": model, "train_batch_size": 128, "num_sgd_iter": 2})
    assert trainer.policy.model.fc1.out_features == 6 and np.isfinite(trainer.train()["train/loss"])
    state = trainer.policy.get_initial_state()
    for _ in range(2):
        _, after, _ = trainer.policy.compute_single_action(np.ones(4, np.float32), state)
        assert (after[0] != state[0]).all()
        state = after
    trainer.stop()
