"""A model whose base network has two heads, as the Keras twin is made of one with two outputs."""

from __future__ import annotations

from typing import Any

from torch import nn

from lightning_rl.rllib.agents.dqn import DQNTrainer
from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2


class TwoHeads(nn.Module):
    def __init__(self, size, num_outputs, width):
        super().__init__()
        self.hidden_layer = nn.Sequential(nn.Linear(size, width), nn.Tanh())
        self.output_layer, self.value_layer = nn.Linear(width, num_outputs), nn.Linear(width, 1)

    def forward(self, obs):
        hidden = self.hidden_layer(obs)
        return self.output_layer(hidden), self.value_layer(hidden)


class MyModelClass(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        # The network's structure follows parameters of model_config. An actor-critic has values and a policy, DQN has
        # values only.
        width = model_config["custom_model_config"].get("width", 8)
        self.base_model = TwoHeads(obs_space.shape[0], num_outputs, width)

    def forward(self, input_dict, state, seq_lens):
        model_out, self._value_out = self.base_model(input_dict["obs"])
        return model_out, state

    def value_function(self):
        return self._value_out.reshape(-1)


def test_an_actor_critic_uses_both_heads_and_dqn_the_first() -> None:
    model = {"custom_model": MyModelClass, "custom_model_config": {"width": 5}}
    for trainer_class in (PPOTrainer, DQNTrainer):
        trainer: Any = trainer_class(env="CartPole-v1", config={"model": model, "train_batch_size": 32})
        found = [module for module in trainer.policy.model.modules() if isinstance(module, MyModelClass)]
        assert found[0].base_model.hidden_layer[0].out_features == 5
        trainer.train()
        trainer.stop()
