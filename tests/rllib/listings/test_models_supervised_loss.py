"""A self-supervised loss within a model: an autoencoder of the observations."""

from __future__ import annotations

from typing import Any

from torch import nn

from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2


class Autoencoder(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.encoder, self.decoder = nn.Sequential(nn.Linear(4, 16), nn.Tanh()), nn.Linear(16, 4)
        self.logits, self.values = nn.Linear(16, num_outputs), nn.Linear(16, 1)

    def forward(self, input_dict, state, seq_lens):
        self.features = self.encoder(input_dict["obs"])
        return self.logits(self.features), state

    def value_function(self):
        return self.values(self.features).squeeze(1)

    def custom_loss(self, policy_loss, loss_inputs):
        obs = loss_inputs["obs"]
        self.reconstruction_loss = (self.decoder(self.encoder(obs)) - obs).square().mean()
        self.policy_loss = policy_loss
        return policy_loss + 10 * self.reconstruction_loss

    def metrics(self):
        return {"policy_loss": self.policy_loss, "reconstruction_loss": self.reconstruction_loss}


def test_the_extra_loss_falls_and_both_are_in_the_metrics() -> None:
    config = {"model": {"custom_model": Autoencoder}, "train_batch_size": 256, "sgd_minibatch_size": 64, "lr": 3e-3}
    trainer: Any = PPOTrainer(env="CartPole-v1", config=config)
    results = [trainer.train() for _ in range(4)]
    trainer.stop()
    losses = [result["train/model/reconstruction_loss"] for result in results]
    assert losses[-1] < 0.5 * losses[0] and "train/model/policy_loss" in results[0]
