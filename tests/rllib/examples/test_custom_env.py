"""custom_env: an environment and a model of the program's own; a loop by hand in place of Tune."""

from __future__ import annotations

import torch
from torch import nn

import lightning_rl.rllib.agents.ppo as ppo
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.models.torch.fcnet import FullyConnectedNetwork as TorchFC
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2
from tests.rllib.examples.envs import SimpleCorridor
from tests.rllib.examples.training import train_until


class TorchCustomModel(TorchModelV2, nn.Module):
    """Delegates to a fully connected network."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.torch_sub_model = TorchFC(obs_space, action_space, num_outputs, model_config, name)

    def forward(self, input_dict, state, seq_lens):
        input_dict["obs"] = input_dict["obs"].float()
        fc_out, _ = self.torch_sub_model(input_dict, state, seq_lens)
        return fc_out, []

    def value_function(self):
        return torch.reshape(self.torch_sub_model.value_function(), [-1])


def test_it_walks_down_the_corridor() -> None:
    """A walk of five steps pays −0.4 and 0 to 2: 0.6 on average."""
    ModelCatalog.register_custom_model("my_model", TorchCustomModel)
    config = ppo.DEFAULT_CONFIG.copy()
    config.update(
        {
            "env": SimpleCorridor,
            "env_config": {"corridor_length": 5},
            "num_gpus": 0,
            "model": {"custom_model": "my_model", "vf_share_layers": True},
            "num_workers": 0,
            "framework": "torch",
            "lr": 1e-3,
        }
    )
    trainer = ppo.PPOTrainer(config=config, env=SimpleCorridor)
    train_until(trainer, stop_reward=0.1, stop_iters=50)
    trainer.stop()
