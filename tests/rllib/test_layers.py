"""RLlib's layers and functions of models compute what theirs compute."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces
from torch import nn

from lightning_rl.errors import ConfigError
from lightning_rl.rllib.models import MODEL_DEFAULTS
from lightning_rl.rllib.models.torch.complex_input_net import ComplexInputNetwork
from lightning_rl.rllib.models.torch.misc import AppendBiasLayer, Reshape, SlimConv2d, SlimFC, same_padding
from lightning_rl.rllib.models.utils import get_activation_fn
from lightning_rl.rllib.policy.rnn_sequencing import add_time_dimension


def test_same_padding_gives_the_size_divided_by_the_stride() -> None:
    """84 / 4 = 21: 20 · 4 + 8 − 84 = 4 rows of padding; 7 / 2 → 4: 3 · 2 + 3 − 7 = 2; a 1 × 1 filter needs none."""
    assert same_padding((84, 84), 8, 4) == ((2, 2, 2, 2), (21, 21))
    assert same_padding((7, 10), (3, 1), (2, 5)) == ((0, 0, 1, 1), (4, 2))
    padding, size = same_padding((7, 9), (4, 3), 2)
    layer = SlimConv2d(3, 5, (4, 3), 2, padding, activation_fn=None, bias_init=0.5)
    assert layer(torch.zeros(2, 3, 7, 9)).shape == (2, 5, *size)
    assert layer(torch.zeros(2, 3, 7, 9)).unique().item() == 0.5
    assert isinstance(SlimConv2d(1, 1, 2, 1, None)[-1], nn.ReLU)


def test_layers_append_reshape_and_activate() -> None:
    appended = AppendBiasLayer(2)
    assert appended(torch.ones(3, 1)).tolist() == [[1, 0, 0]] * 3 and appended.log_std.requires_grad
    assert Reshape([-1, 2])(torch.zeros(2, 3)).shape == (3, 2)
    assert isinstance(SlimFC(1, 1, activation_fn="elu")[-1], nn.ELU) and len(SlimFC(1, 1, activation_fn="linear")) == 1
    assert get_activation_fn("swish", "torch") is nn.SiLU and get_activation_fn(nn.Tanh) is nn.Tanh
    with pytest.raises(ConfigError, match=r"'rellu'.*'relu'"):
        get_activation_fn("rellu")


def test_rows_get_a_dimension_of_time() -> None:
    rows = torch.arange(12).reshape(6, 2)
    assert add_time_dimension(rows, max_seq_len=3, framework="torch").shape == (2, 3, 2)
    assert add_time_dimension(rows, seq_lens=torch.tensor([1, 2, 2]))[2, 1].tolist() == [10, 11]
    assert add_time_dimension(rows, max_seq_len=3, time_major=True)[0, 1].tolist() == [6, 7]


def test_a_network_of_several_parts_has_rllib_s_constructor() -> None:
    space = spaces.Dict({"a": spaces.Box(-1, 1, (3,)), "b": spaces.Discrete(4)})
    network = ComplexInputNetwork(space, spaces.Discrete(2), 2, {**MODEL_DEFAULTS, "fcnet_hiddens": [8]}, "net")
    outputs, _ = network({"obs": {"a": torch.zeros(5, 3), "b": torch.zeros(5, dtype=torch.long)}}, [], None)
    assert outputs.shape == (5, 2) and network.value_function().shape == (5,)
