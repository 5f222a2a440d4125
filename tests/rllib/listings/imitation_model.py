"""The model of the imitation listing, whose loss reads its data from files."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from lightning_rl.rllib.models.modelv2 import restore_original_dimensions
from lightning_rl.rllib.models.torch.fcnet import FullyConnectedNetwork
from lightning_rl.rllib.models.torch.torch_action_dist import TorchCategorical
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2
from lightning_rl.rllib.offline.json_reader import JsonReader

__all__ = ["TorchCustomLossModel"]


class TorchCustomLossModel(TorchModelV2, nn.Module):
    """A policy with an imitation loss on top of its own."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, input_files):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.input_files = input_files
        # Create a new input reader per worker.
        self.reader = JsonReader(self.input_files)
        self.fcnet = FullyConnectedNetwork(self.obs_space, self.action_space, num_outputs, model_config, name="fcnet")

    def forward(self, input_dict, state, seq_lens):
        # Delegate to our FCNet.
        return self.fcnet(input_dict, state, seq_lens)

    def value_function(self):
        return self.fcnet.value_function()

    def custom_loss(self, policy_loss, loss_inputs):
        # Get the next batch from our input files.
        batch = self.reader.next()
        device = policy_loss[0].device
        # Define a secondary loss by a second forward with the same weights.
        obs = restore_original_dimensions(
            torch.from_numpy(batch["obs"]).float().to(device), self.obs_space, tensorlib="torch"
        )
        logits, _ = self.forward({"obs": obs}, [], None)
        action_dist = TorchCategorical(logits, self.model_config)
        imitation_loss = torch.mean(-action_dist.logp(torch.from_numpy(batch["actions"]).to(device)))
        self.imitation_loss_metric = imitation_loss.item()
        self.policy_loss_metric = np.mean([loss.item() for loss in policy_loss])
        # Add the imitation loss to each already calculated policy loss term.
        return [loss_ + 10 * imitation_loss for loss_ in policy_loss]

    def metrics(self):
        return {"policy_loss": self.policy_loss_metric, "imitation_loss": self.imitation_loss_metric}
