"""custom_model_api: models of the catalog with methods of an interface of one's own."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from lightning_rl.rllib.models.catalog import MODEL_DEFAULTS, ModelCatalog
from lightning_rl.rllib.models.torch.fcnet import FullyConnectedNetwork as TorchFullyConnectedNetwork
from lightning_rl.rllib.models.torch.misc import SlimFC
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2
from lightning_rl.rllib.policy.sample_batch import SampleBatch


class TorchDuelingQModel(TorchModelV2):
    """A dueling head on the features of the model that the catalog chooses."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, None, model_config, name)  # features, no logits
        self.A = SlimFC(in_size=self.num_outputs, out_size=num_outputs)
        self.V = SlimFC(in_size=self.num_outputs, out_size=1)

    def get_q_values(self, underlying_output):
        v, a = self.V(underlying_output), self.A(underlying_output)
        return v + a - torch.unsqueeze(torch.mean(a, 1), 1)


class TorchContActionQModel(TorchModelV2):
    """Q(s, a) of the features of the model that the catalog chooses."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, None, model_config, name)
        combined_space = Box(-1.0, 1.0, (self.num_outputs + action_space.shape[0],))
        self.q_head = TorchFullyConnectedNetwork(combined_space, action_space, 1, model_config, "q_head")

    def get_single_q_value(self, underlying_output, action):
        q_values, _ = self.q_head({"obs": torch.cat([underlying_output, action], dim=-1)})
        return q_values


def test_the_interface_has_the_features_of_the_default_model() -> None:
    obs_space, action_space = Box(-1.0, 1.0, (3,)), Discrete(3)
    my_dueling_model = ModelCatalog.get_model_v2(
        obs_space=obs_space,
        action_space=action_space,
        num_outputs=action_space.n,
        model_config=MODEL_DEFAULTS,
        framework="torch",
        model_interface=TorchDuelingQModel,
        name="dueling_q_model",
    )
    obs = torch.from_numpy(np.array([obs_space.sample() for _ in range(10)]))
    out, _ = my_dueling_model(input_dict=SampleBatch(obs=obs, _is_training=False))
    assert out.shape == (10, 256)
    q_values = my_dueling_model.get_q_values(out)
    assert q_values.shape == (10, action_space.n)
    assert torch.allclose(q_values.mean(1), my_dueling_model.V(out).squeeze(1), atol=1e-5)  # A − mean A sums to 0
    q_values.sum().backward()
    assert all(parameter.grad is not None for parameter in my_dueling_model.A.parameters())

    action_space = Box(-1.0, 1.0, (2,))
    my_cont_action_q_model = ModelCatalog.get_model_v2(
        obs_space=obs_space,
        action_space=action_space,
        num_outputs=2,
        model_config=MODEL_DEFAULTS,
        framework="torch",
        model_interface=TorchContActionQModel,
        name="cont_action_q_model",
    )
    out, _ = my_cont_action_q_model(input_dict=SampleBatch(obs=obs, _is_training=False))
    actions = torch.from_numpy(np.array([action_space.sample() for _ in range(10)]))
    assert my_cont_action_q_model.get_single_q_value(out, actions).shape == (10, 1)
