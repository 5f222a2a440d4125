"""An imitation loss within a model, which reads its data from files in the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from lightning_rl.rllib.agents.pg import PGTrainer
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.models.modelv2 import restore_original_dimensions
from lightning_rl.rllib.models.torch.fcnet import FullyConnectedNetwork
from lightning_rl.rllib.models.torch.torch_action_dist import TorchCategorical
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2
from lightning_rl.rllib.offline.json_reader import JsonReader
from lightning_rl.rllib.offline.json_writer import JsonWriter
from lightning_rl.rllib.policy.sample_batch import SampleBatch


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


def test_the_policy_takes_the_actions_of_the_files_while_it_learns(tmp_path: Any) -> None:
    """The expert pushes the cart to the side to which the pole falls; ln 2 is the loss of equal probabilities."""
    generator = np.random.default_rng(0)
    writer = JsonWriter(tmp_path)
    for _ in range(4):
        obs = generator.normal(size=(200, 4)).astype(np.float32)
        writer.write(SampleBatch(obs=obs, actions=(obs[:, 2] > 0).astype(np.int64)))
    ModelCatalog.register_custom_model("custom_loss", TorchCustomLossModel)
    config = {
        "num_workers": 0,
        "framework": "torch",
        "lr": 3e-3,
        "rollout_fragment_length": 200,
        "model": {"custom_model": "custom_loss", "custom_model_config": {"input_files": [f"{tmp_path}/*.json"]}},
    }
    trainer: Any = PGTrainer(env="CartPole-v1", config=config)
    results = [trainer.train() for _ in range(30)]
    trainer.stop()
    losses = [each["info"]["learner"]["default_policy"]["model/imitation_loss"] for each in results]
    assert 0.5 < losses[0] < 0.9 and losses[-1] < 0.6 * losses[0]
    assert "model/policy_loss" in results[0]["info"]["learner"]["default_policy"]
