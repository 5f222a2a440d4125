"""autoregressive_action_dist: P(a1) · P(a2 | a1), with all that a distribution of RLlib's example defines."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.models.torch.misc import SlimFC, normc_initializer
from lightning_rl.rllib.models.torch.torch_action_dist import TorchCategorical, TorchDistributionWrapper
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2
from tests.rllib.examples.envs import CorrelatedActionsEnv
from tests.rllib.examples.training import train_until


class TorchBinaryAutoregressiveDistribution(TorchDistributionWrapper):
    def deterministic_sample(self):
        a1 = self._a1_distribution().deterministic_sample()
        a2 = self._a2_distribution(a1).deterministic_sample()
        self._action_logp = self._a1_distribution().logp(a1) + self._a2_distribution(a1).logp(a2)
        return (a1, a2)

    def sample(self):
        a1 = self._a1_distribution().sample()
        a2 = self._a2_distribution(a1).sample()
        self._action_logp = self._a1_distribution().logp(a1) + self._a2_distribution(a1).logp(a2)
        return (a1, a2)

    def logp(self, actions):
        a1, a2 = actions[:, 0], actions[:, 1]
        a1_vec = torch.unsqueeze(a1.float(), 1)
        a1_logits, a2_logits = self.model.action_module(self.inputs, a1_vec)
        return TorchCategorical(a1_logits).logp(a1) + TorchCategorical(a2_logits).logp(a2)

    def sampled_action_logp(self):
        return self._action_logp

    def entropy(self):
        a1_dist = self._a1_distribution()
        return a1_dist.entropy() + self._a2_distribution(a1_dist.sample()).entropy()

    def kl(self, other):
        a1_dist = self._a1_distribution()
        a1 = a1_dist.sample()
        a2_terms = self._a2_distribution(a1).kl(other._a2_distribution(a1))
        return a1_dist.kl(other._a1_distribution()) + a2_terms

    def _a1_distribution(self):
        batch = self.inputs.shape[0]
        a1_logits, _ = self.model.action_module(self.inputs, torch.zeros((batch, 1)))
        return TorchCategorical(a1_logits)

    def _a2_distribution(self, a1):
        _, a2_logits = self.model.action_module(self.inputs, torch.unsqueeze(a1.float(), 1))
        return TorchCategorical(a2_logits)

    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return 16


class TorchAutoregressiveActionModel(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.context_layer = SlimFC(
            in_size=obs_space.shape[0], out_size=num_outputs, initializer=normc_initializer(1.0), activation_fn=nn.Tanh
        )
        self.value_branch = SlimFC(in_size=num_outputs, out_size=1, initializer=normc_initializer(0.01))

        class _ActionModel(nn.Module):
            def __init__(self):
                nn.Module.__init__(self)
                self.a1_logits = SlimFC(in_size=num_outputs, out_size=2, initializer=normc_initializer(0.01))
                self.a2_hidden = SlimFC(
                    in_size=num_outputs + 1, out_size=16, initializer=normc_initializer(1.0), activation_fn=nn.Tanh
                )
                self.a2_logits = SlimFC(in_size=16, out_size=2, initializer=normc_initializer(0.01))

            def forward(self, ctx_input, a1_input):
                hidden = self.a2_hidden(torch.cat([ctx_input, a1_input], dim=1))
                return self.a1_logits(ctx_input), self.a2_logits(hidden)

        self.action_module = _ActionModel()

    def forward(self, input_dict, state, seq_lens):
        self._context = self.context_layer(input_dict["obs"])
        return self._context, state

    def value_function(self):
        return torch.reshape(self.value_branch(self._context), [-1])


@pytest.mark.parametrize("stop_reward", [170, pytest.param(200, marks=pytest.mark.slow)])
def test_the_second_action_follows_the_first(stop_reward: float) -> None:
    """200 is the most, and 100 what chance pays."""
    ModelCatalog.register_custom_model("autoregressive_model", TorchAutoregressiveActionModel)
    ModelCatalog.register_custom_action_dist("binary_autoreg_dist", TorchBinaryAutoregressiveDistribution)
    config = {
        "env": CorrelatedActionsEnv,
        "gamma": 0.5,
        "num_gpus": 0,
        "model": {"custom_model": "autoregressive_model", "custom_action_dist": "binary_autoreg_dist"},
        "framework": "torch",
        "kl_coeff": 0.2,
        "entropy_coeff": 0.001,
    }
    trainer = PPOTrainer(config=config)
    train_until(trainer, stop_reward, stop_iters=200)
    trainer.stop()
