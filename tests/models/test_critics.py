"""Several critics computed at once equal the critics one by one."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.testing import assert_close

from lightning_rl.models.batch_norm import NormPlace
from lightning_rl.models.critics import CriticEnsemble, ParallelMLP

BOX = spaces.Box(-1, 1, (3,), np.float32)


def test_a_batched_layer_is_the_layer_of_each_network() -> None:
    torch.manual_seed(0)
    networks = ParallelMLP(3, 4, [5, 6], 2, activation="tanh")
    x = torch.randn(7, 4)
    together = networks(x)
    for number in range(3):
        alone = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2))
        with torch.no_grad():
            linears = [layer for layer in alone if isinstance(layer, nn.Linear)]
            for layer, weight, bias in zip(linears, networks.weights, networks.biases, strict=True):
                layer.weight.copy_(weight[number].t())
                layer.bias.copy_(bias[number, 0])
        assert_close(together[number], alone(x))
    assert not torch.allclose(together[0], together[1])  # each drew its own first weights


def test_layer_norm_normalizes_every_hidden_layer_of_every_network() -> None:
    networks = ParallelMLP(2, 3, [8], 1, activation="linear", layer_norm=True)
    x = 1e4 * torch.randn(5, 3)  # beside which the biases are nothing
    assert_close(networks(x), networks(100.0 * x), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_batch_normed_networks_are_those_of_torch_one_by_one(place: NormPlace, training: bool) -> None:
    """Inputs of networks and outputs of hidden layers; the layers before batch norm have no bias."""
    networks, x = ParallelMLP(3, 4, [5, 6], 2, activation="tanh", batch_norm=place), 3.0 * torch.randn(7, 4) + 1.0
    networks(2.0 * x)  # running statistics other than the first
    alone = [_network_of_torch(networks, number, place).train(training) for number in range(3)]
    expected = torch.stack([network(x) for network in alone])
    assert_close(networks.train(training)(x), expected)
    assert len(networks.biases) == (1 if place == "before" else 3)


def _network_of_torch(networks: ParallelMLP, number: int, place: NormPlace) -> nn.Sequential:
    parts: list[nn.Module] = []
    norms: Any = networks.batch_norms[number]
    for index, norm in enumerate(norms):
        twin = nn.BatchNorm1d(len(norm.weight), eps=1e-3, momentum=0.01)
        twin.load_state_dict(norm.state_dict(), strict=False)
        parts += [twin] if index == 0 else [twin, nn.Tanh()] if place == "before" else [nn.Tanh(), twin]
        weight, bias = networks._layers[index]
        layer = nn.Linear(*weight.shape[1:], bias=bias is not None)
        layer.weight.data = weight[number].t()
        if bias is not None:
            layer.bias.data = bias[number, 0]
        parts.append(layer)
    return nn.Sequential(*parts)


def test_dropout_is_for_training_only() -> None:
    networks, x = ParallelMLP(2, 3, [64], 1, dropout=0.5), torch.randn(5, 3)
    assert not torch.equal(networks(x), networks(x))
    networks.eval()
    assert torch.equal(networks(x), networks(x))


def test_q_values_depend_on_observation_and_action_and_on_nothing_else() -> None:
    critic = CriticEnsemble(BOX, BOX, {"fcnet_hiddens": [16]}, count=2, action_size=3)
    obs, actions = torch.randn(4, 3), torch.randn(4, 3)
    values = critic({"obs_flat": obs}, actions)
    assert values.shape == (2, 4)
    moved = actions.clone()
    moved[1] += 1.0
    changed = (critic({"obs_flat": obs}, moved) - values).abs().sum(0) > 0
    assert changed.tolist() == [False, True, False, False]


def test_critics_judge_actions_of_their_own_as_they_would_one_by_one() -> None:
    critic = CriticEnsemble(BOX, BOX, {"fcnet_hiddens": [16], "layer_norm": True}, count=2, action_size=3)
    obs, actions = torch.randn(4, 3), torch.randn(2, 4, 3)
    values = critic({"obs_flat": obs}, actions)
    each = torch.stack([critic({"obs_flat": obs}, actions[number])[number] for number in range(2)])
    assert torch.allclose(values, each, atol=1e-6)


def test_an_image_goes_through_one_encoder_that_the_critics_share() -> None:
    space = spaces.Box(0, 255, (36, 36, 3), np.uint8)
    critic = CriticEnsemble(space, spaces.Discrete(3), {"fcnet_hiddens": [16]}, count=2, outputs=3)
    obs = torch.randint(0, 256, (4, 36, 36, 3), dtype=torch.uint8)
    values = critic({"obs": obs})
    assert values.shape == (2, 4, 3)
    values[0].sum().backward()
    encoder = critic.encoder
    assert encoder is not None
    assert any(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in encoder.parameters())


def test_a_copy_is_a_copy() -> None:
    """The parameters that a forward pass uses are those of the state dict, also in a deep copy."""
    networks = ParallelMLP(2, 3, [8], 1)
    twin, x = copy.deepcopy(networks), torch.randn(5, 3)
    with torch.no_grad():
        for parameter in networks.parameters():
            parameter.add_(1.0)
    assert not torch.allclose(networks(x), twin(x))
    twin.load_state_dict(networks.state_dict())
    assert torch.equal(networks(x), twin(x))
