"""Noisy layers: the paper's equations, noise that only `resample` changes, and no noise in greedy acting."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from lightning_rl.fast_torch import lean_linear
from lightning_rl.models.noisy import NoisyLinear, resample_noise, with_noise


def layer(in_features: int = 3, out_features: int = 2, **keywords) -> NoisyLinear:
    torch.manual_seed(0)
    return NoisyLinear(in_features, out_features, **keywords)


def test_the_output_is_equation_9_with_factorised_noise():
    """f(ε) = sign(ε)√|ε|; ε_in (4, −1) → (2, −1), ε_out (9) → 3.

    w = (1, 2) + (½, ¼) ⊙ 3·(2, −1) = (4, 1¼); b = 5 + 2·3 = 11; x = (1, 10): y = 4 + 12½ + 11 = 27½.
    """
    noisy = layer(2, 1)
    with torch.no_grad():
        noisy.weight_mean.copy_(torch.tensor([[1.0, 2.0]]))
        noisy.weight_sigma.copy_(torch.tensor([[0.5, 0.25]]))
        noisy.bias_mean.fill_(5.0)
        noisy.bias_sigma.fill_(2.0)
        noisy.noise_in.copy_(torch.tensor([2.0, -1.0]))
        noisy.noise_out.fill_(3.0)
    assert noisy(torch.tensor([[1.0, 10.0]])).item() == 27.5


def test_noise_is_the_signed_root_of_normal_draws():
    """First the inputs' draws, then the outputs'."""
    noisy = layer()
    noisy.resample(torch.Generator().manual_seed(5))
    draws = torch.Generator().manual_seed(5)
    for noise, size in ((noisy.noise_in, 3), (noisy.noise_out, 2)):
        expected = torch.empty(size).normal_(generator=draws)
        assert_close(noise.sign() * noise.square(), expected)


def test_first_values_are_the_papers():
    """in = 400: μ within ± 0.05, of deviation 0.05/√3; σ = 0.5/20 = 0.025."""
    noisy = layer(400, 300)
    for mean in (noisy.weight_mean, noisy.bias_mean):
        assert mean.abs().max() <= 0.05
    assert noisy.weight_mean.std().item() == pytest.approx(0.05 / 3**0.5, rel=0.02)
    assert_close(noisy.weight_sigma, torch.full((300, 400), 0.025))
    assert_close(noisy.bias_sigma, torch.full((300,), 0.025))
    assert_close(layer(400, 300, sigma=0.1).bias_sigma, torch.full((300,), 0.005))


def test_forward_draws_nothing():
    noisy, x = layer(), torch.randn(4, 3)
    state = torch.get_rng_state()
    assert torch.equal(noisy(x), noisy(x))
    assert torch.equal(torch.get_rng_state(), state)
    before = noisy(x)
    noisy.resample(torch.Generator().manual_seed(1))
    assert not torch.equal(noisy(x), before)


def test_eval_mode_is_the_means_alone():
    noisy, x = layer().eval(), torch.randn(4, 3)
    expected = torch.nn.functional.linear(x, noisy.weight_mean, noisy.bias_mean)
    for seed in (1, 2):
        noisy.resample(torch.Generator().manual_seed(seed))
        assert torch.equal(noisy(x), expected)


def test_exploring_in_eval_mode_has_noise_until_the_end_even_of_an_error():
    network, x = nn.Sequential(layer(), nn.ReLU(), layer(2, 2)), torch.randn(4, 3)
    noisy, greedy = network(x), network.eval()(x)
    with pytest.raises(KeyError), with_noise(network):
        assert torch.equal(network(x), noisy) and not torch.equal(noisy, greedy)
        raise KeyError
    assert torch.equal(network(x), greedy)


def test_gradients_reach_means_and_sigmas():
    """dy/dσ = x · noise of the weight; dy/dμ = x."""
    noisy = layer(1, 1)
    noisy(torch.tensor([[3.0]])).sum().backward()
    noise = (noisy.noise_in * noisy.noise_out).item()
    assert noisy.weight_mean.grad.item() == 3.0
    assert noisy.weight_sigma.grad.item() == pytest.approx(3.0 * noise)
    assert noisy.bias_mean.grad.item() == 1.0
    assert noisy.bias_sigma.grad.item() == pytest.approx(noisy.noise_out.item())


def test_weights_travel_without_the_noise_and_everything_can_be_copied():
    one, other, x = layer(), layer(), torch.randn(4, 3)
    other.resample(torch.Generator().manual_seed(9))
    with torch.no_grad():
        one.weight_mean.add_(1.0)
    kept = other.noise_in.clone()
    other.load_state_dict(one.state_dict())
    assert torch.equal(other.noise_in, kept) and set(one.state_dict()) == {name for name, _ in one.named_parameters()}
    assert torch.equal(other.eval()(x), one.eval()(x))
    for again in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert torch.equal(again.train()(x), one.train()(x))


def test_lean_linear_works_for_a_noisy_layer_without_bias():
    noisy, x = layer(bias=False), torch.randn(4, 3)
    weight = noisy.weight_mean + noisy.weight_sigma * torch.outer(noisy.noise_out, noisy.noise_in)
    assert_close(lean_linear(noisy, x), x @ weight.T)


def test_one_generator_renews_every_layer_of_a_network_reproducibly():
    network = nn.Sequential(layer(), nn.Sequential(layer(2, 4)))
    drawn = []
    for seed in (3, 3, 4):
        resample_noise(network, torch.Generator().manual_seed(seed))
        drawn.append(torch.cat([network[0].noise_in, network[1][0].noise_out]))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    assert not torch.equal(network[0].noise_out, network[1][0].noise_in)
