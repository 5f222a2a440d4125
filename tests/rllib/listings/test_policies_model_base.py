"""The base class of models: what its methods get and return."""

from __future__ import annotations

from typing import Any

from torch import nn

from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.models.modelv2 import ModelV2


class MyModel(ModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, framework="torch"):
        ModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name, framework)
        nn.Module.__init__(self)
        self.base_model = nn.Sequential(nn.Linear(obs_space.shape[0], 16), nn.Tanh())
        self.logits, self.values = nn.Linear(16, num_outputs), nn.Linear(16, 1)

    def forward(self, input_dict, state, seq_lens):
        self.forwards = {"obs", "obs_flat"} <= {*input_dict, "obs_flat"} and input_dict["obs_flat"].shape
        self.features = self.base_model(input_dict["obs_flat"])
        return self.logits(self.features), state

    def custom_loss(self, policy_loss, loss_inputs):
        self.rows = loss_inputs.count
        return [policy_loss, 0.01 * self.features.square().mean()]

    def metrics(self):
        return {"own_metrics": self.rows}

    def value_function(self):
        return self.values(self.features).squeeze(1)


def test_a_loss_may_be_changed_and_metrics_are_the_model_s_own() -> None:
    config = {"model": {"custom_model": MyModel}, "train_batch_size": 64, "sgd_minibatch_size": 32}
    trainer: Any = PPOTrainer(env="CartPole-v1", config=config)
    result = trainer.train()
    trainer.stop()
    assert 20 <= result["train/model/own_metrics"] <= 32 and trainer.policy.model.forwards[1] == 4
