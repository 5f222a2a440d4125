"""Losses of offline learning, compared with numbers worked by hand and with peers' programs."""

from __future__ import annotations

import math

import torch
from torch.testing import assert_close

from lightning_rl.losses import advantage_weights, conservative_gap, policy_gradient, regularized_policy_loss


def test_weights_of_marwil() -> None:
    """A [2, −4], β 1, c² 100 + 0.01 (10 − 100) = 99.1: exp(A / c) = 1.222510 and 0.669106; log π [−.5, −1].

    RLlib's marwil_torch_policy.py computes the loss 0.6401807 of these rows.
    """
    weights = advantage_weights(torch.tensor([2.0, -4.0]), 1.0 / math.sqrt(99.1), 100.0)
    assert_close(weights, torch.tensor([1.222510, 0.669106]))
    assert_close(policy_gradient(torch.tensor([-0.5, -1.0]), weights), torch.tensor(0.6401807))


def test_weights_stay_below_the_limit_and_carry_no_gradient() -> None:
    """exp(3 · 1) = 20.0855; exp(3 · 2) is above 100, and exp(3 · 1000) is infinite; β = 0 gives 1."""
    advantages = torch.tensor([1.0, 2.0, 1000.0, -1000.0], requires_grad=True)
    weights = advantage_weights(advantages, 3.0, 100.0)
    assert_close(weights, torch.tensor([20.085537, 100.0, 100.0, 0.0]))
    assert not weights.requires_grad
    assert_close(advantage_weights(advantages, 0.0, 100.0), torch.ones(4))


def test_gap_of_discrete_actions() -> None:
    """log(e¹ + e² + e³) − 1 = 2.4076060; a forbidden action does not count: log(e¹ + e²) − 1 = 1.3132617."""
    q_values = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, -torch.inf]])
    assert_close(conservative_gap(q_values, torch.tensor([1.0, 1.0])), torch.tensor([2.4076060, 1.3132617]))


def test_gap_of_sampled_actions() -> None:
    """RLlib's and CORL's sum over uniform, next and current actions: 3.1143973 − 0.6 = 2.5143973.

    One entry in [−1, 1], so log μ of uniform actions is log ½; Q .5 and 1 of uniform actions, .8 and .2 of next ones
    with log π −1 and −.5, .3 and .9 of current ones with log π −.7 and −.2.
    """
    q_values = torch.tensor([0.5, 1.0, 0.8, 0.2, 0.3, 0.9])
    densities = torch.tensor([math.log(0.5), math.log(0.5), -1.0, -0.5, -0.7, -0.2])
    gap = conservative_gap((q_values - densities).expand(2, 1, 6), torch.tensor([[0.6], [0.1]]))
    assert_close(gap, torch.tensor([[2.5143973], [3.0143973]]))


def test_a_low_temperature_turns_the_gap_into_the_maximum() -> None:
    assert_close(conservative_gap(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([0.5]), 0.01), torch.tensor([2.5]))


def test_policy_loss_of_td3_bc() -> None:
    """α 2.5, Q [1, −3], mean |Q| = 2, distances [.5, .1]: .3 − 2.5 · (−1) / 2 = 1.55; λ has no gradient.

    The gradient by each Q is −2.5 / 2 / 2, as in CORL's td3_bc.py, where `lmbda` is detached.
    """
    q_values = torch.tensor([1.0, -3.0], requires_grad=True)
    loss = regularized_policy_loss(q_values, torch.tensor([0.5, 0.1]), 2.5)
    loss.backward()
    assert_close(loss.detach(), torch.tensor(1.55))
    assert_close(q_values.grad, torch.tensor([-0.625, -0.625]))
