"""An action of two parts, the second sampled given the first."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium.spaces import Discrete, Tuple
from torch import nn

from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.models import ActionDistribution, ModelCatalog
from lightning_rl.rllib.models.action_dist import TupleActions
from lightning_rl.rllib.models.torch.misc import SlimFC, normc_initializer
from lightning_rl.rllib.models.torch.torch_action_dist import TorchCategorical as Categorical
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2
from tests.training import probes


class BinaryAutoregressiveOutput(ActionDistribution):
    """Action distribution P(a1, a2) = P(a1) * P(a2 | a1)"""

    @staticmethod
    def required_model_output_shape(self, model_config):
        return 16  # controls model output feature vector size

    def sample(self):
        # first, sample a1
        a1_dist = self._a1_distribution()
        a1 = a1_dist.sample()

        # sample a2 conditioned on a1
        a2_dist = self._a2_distribution(a1)
        a2 = a2_dist.sample()

        # return the action tuple
        return TupleActions([a1, a2])

    def logp(self, actions):
        a1, a2 = actions[:, 0], actions[:, 1]
        a1_vec = torch.unsqueeze(a1.float(), 1)
        a1_logits, a2_logits = self.model.action_model(self.inputs, a1_vec)
        return Categorical(a1_logits, None).logp(a1) + Categorical(a2_logits, None).logp(a2)

    def _a1_distribution(self):
        BATCH = self.inputs.shape[0]  # noqa: N806
        a1_logits, _ = self.model.action_model(self.inputs, torch.zeros((BATCH, 1)))
        a1_dist = Categorical(a1_logits, None)
        return a1_dist

    def _a2_distribution(self, a1):
        a1_vec = torch.unsqueeze(a1.float(), 1)
        _, a2_logits = self.model.action_model(self.inputs, a1_vec)
        a2_dist = Categorical(a2_logits, None)
        return a2_dist


class AutoregressiveActionsModel(TorchModelV2, nn.Module):
    """Implements the `.action_model` branch required above."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        if action_space != Tuple([Discrete(2), Discrete(2)]):
            raise ValueError("This model only supports the [2, 2] action space")

        # Output of the model (normally 'logits', but for an autoregressive
        # dist this is more like a context/feature layer encoding the obs)
        self.context_layer = SlimFC(
            obs_space.shape[0], num_outputs, initializer=normc_initializer(1.0), activation_fn=nn.Tanh
        )
        self.value_branch = SlimFC(num_outputs, 1, initializer=normc_initializer(0.01))

        # P(a1 | obs)
        self.a1_logits = SlimFC(num_outputs, 2, initializer=normc_initializer(0.01))

        # P(a2 | a1)
        # --note: typically you'd want to implement P(a2 | a1, obs)
        self.a2_hidden = SlimFC(1, 16, initializer=normc_initializer(1.0), activation_fn=nn.Tanh)
        self.a2_logits = SlimFC(16, 2, initializer=normc_initializer(0.01))

    def action_model(self, ctx_input, a1_input):
        return self.a1_logits(ctx_input), self.a2_logits(self.a2_hidden(a1_input))

    def forward(self, input_dict, state, seq_lens):
        self._context = self.context_layer(input_dict["obs"])
        return self._context, state

    def value_function(self):
        return torch.reshape(self.value_branch(self._context), [-1])


class Matching(probes.Probe):
    """Pays when both actions are equal: independent parts that explore get half of it."""

    length = 10

    def __init__(self, env_config):
        super().__init__()
        self.action_space = Tuple([Discrete(2), Discrete(2)])

    def reward(self, action):
        return float(action[0] == action[1])


@pytest.mark.every
def test_the_second_part_learns_to_follow_the_first() -> None:
    ModelCatalog.register_custom_model("autoregressive_model", AutoregressiveActionsModel)
    ModelCatalog.register_custom_action_dist("binary_autoreg_output", BinaryAutoregressiveOutput)
    model = {"custom_model": "autoregressive_model", "custom_action_dist": "binary_autoreg_output"}
    sizes = {"train_batch_size": 320, "num_envs_per_worker": 8, "sgd_minibatch_size": 80, "lr": 1e-2, "seed": 1}
    trainer: Any = PPOTrainer(env=Matching, config={"model": model, **sizes, "gamma": 0.5})
    for _ in range(8):
        result = trainer.train()
    action = trainer.compute_single_action(trainer.policy.observation_space.sample())
    trainer.stop()
    assert result["episode_reward_mean"] > 7 and action[0] == action[1]
