"""Actor losses that use critics, compared with numbers worked by hand and with finite differences."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.testing import assert_close

from lightning_rl.losses import (
    critic_error,
    discrete_soft_policy_loss,
    discrete_soft_values,
    soft_policy_loss,
    soft_values,
    td_targets,
    temperature_loss,
)
from tests.refusals import not_refused

PI = torch.tensor([[0.2, 0.3, 0.5]])
LOWEST = torch.tensor([[1.0, 1.0, 3.0]])  # of Q1 = [1, 2, 3] and Q2 = [1.5, 1, 4]


def test_sac_target_of_two_critics() -> None:
    """r 1, γ 0.99, Q' {2, 3}, α 0.2, log π −0.7: 1 + 0.99 (2 + 0.14) = 3.1186."""
    lowest = torch.tensor([[2.0], [3.0]]).amin(0)
    following = soft_values(lowest, torch.tensor([-0.7]), 0.2)
    target = td_targets(torch.ones(1), following, torch.tensor([False]), 0.99)
    assert_close(target, torch.tensor([3.1186]))


def test_discrete_values_loss_and_temperature() -> None:
    """π [.2, .3, .5], α 0.2: Σ π Q = 2, H = 1.02965, so V = 2.20593; y = 1 + 0.99 V; H̄ = 0.98 log 3."""
    value = discrete_soft_values(PI, PI.log(), LOWEST, 0.2)
    assert_close(value, torch.tensor([2.2059306]))
    assert_close(1 + 0.99 * value, torch.tensor([3.1838713]))
    assert_close(discrete_soft_policy_loss(PI, PI.log(), LOWEST, 0.2), torch.tensor(-2.2059306))
    two = [torch.cat((each, each)) for each in (PI, PI.log(), LOWEST)]
    assert_close(discrete_soft_policy_loss(*two, 0.2), torch.tensor(-2.2059306))  # a mean over rows
    entropy = -(PI * PI.log()).sum(-1)
    loss = temperature_loss(torch.tensor(0.2).log(), entropy, 0.98 * math.log(3))
    assert_close(loss, torch.tensor(0.0756227))


def test_an_impossible_action_adds_nothing_even_where_its_logarithm_is_minus_infinity() -> None:
    probs = torch.tensor([[0.5, 0.5, 0.0]], requires_grad=True)
    value = discrete_soft_values(probs, probs.detach().log(), torch.tensor([[1.0, 3.0, -torch.inf]]), 0.5)
    assert_close(value, torch.tensor([2.0 + 0.5 * math.log(2)]))


def test_temperature_rises_below_the_target_entropy_and_falls_above() -> None:
    for entropy, sign in ((-2.0, -1.0), (0.0, 1.0)):
        log_alpha = torch.tensor(0.3, requires_grad=True)
        temperature_loss(log_alpha, torch.full((4,), entropy), -1.0).backward()
        assert log_alpha.grad is not None and log_alpha.grad.sign() == sign  # descent goes the other way


def test_policy_loss_climbs_q_and_entropy() -> None:
    alpha = torch.tensor(0.4, requires_grad=True)
    q_values, logp = torch.zeros(2, requires_grad=True), torch.ones(2, requires_grad=True)
    soft_policy_loss(q_values, logp, alpha).backward()
    assert_close(q_values.grad, torch.tensor([-0.5, -0.5]))
    assert_close(logp.grad, torch.tensor([0.2, 0.2]))
    assert alpha.grad is None
    assert_close(soft_policy_loss(q_values, logp, 0.4), torch.tensor(0.4))  # α may be a plain number


def test_the_temperature_s_loss_is_a_mean_that_leaves_the_actor_alone() -> None:
    """log α (½ − 1): entropies ¼ and ¾."""
    entropy = torch.tensor([0.25, 0.75], requires_grad=True)
    loss = temperature_loss(torch.tensor(2.0, requires_grad=True), entropy, 1.0)
    loss.backward()
    assert_close(loss, torch.tensor(-1.0))
    assert entropy.grad is None


def test_no_gradient_reaches_alpha_or_a_discrete_critic_from_the_policy_loss() -> None:
    alpha, q_values = torch.tensor(0.2, requires_grad=True), LOWEST.clone().requires_grad_()
    probs = PI.clone().requires_grad_()
    discrete_soft_policy_loss(probs, probs.log(), q_values, alpha).backward()
    assert alpha.grad is None and q_values.grad is None and probs.grad is not None


def test_critic_error_sums_over_critics_and_averages_over_rows() -> None:
    """½ ((1 + 4) / 2 + (0 + 9) / 2) = 3.5; row weights 3 and ½: ½ ((3 + 2) / 2 + (0 + 4.5) / 2) = 2.375."""
    q_values, targets = torch.tensor([[1.0, 2.0], [2.0, 3.0]]), torch.tensor([2.0, 0.0])
    assert_close(critic_error(q_values, targets), torch.tensor(0.5 * (2.5 + 4.5)))
    assert_close(critic_error(q_values, targets, torch.tensor([3.0, 0.5])), torch.tensor(2.375))


def test_critic_error_takes_targets_of_each_critic() -> None:
    """½ ((1 + 4) / 2 + (1 + 0) / 2) = 1.5."""
    q_values, targets = torch.tensor([[1.0, 2.0], [2.0, 3.0]]), torch.tensor([[2.0, 0.0], [1.0, 3.0]])
    assert_close(critic_error(q_values, targets), torch.tensor(1.5))


def test_shapes_that_would_broadcast_are_refused() -> None:
    row, column = torch.zeros(1, 3), torch.zeros(3, 1)
    cases: list[tuple[Any, tuple[Any, ...], str]] = [
        (critic_error, (torch.zeros(2, 3), column), r"\[K, N\]"),
        (critic_error, (torch.zeros(2, 3, 4), torch.zeros(3, 4)), r"\[K, N\]"),
        (discrete_soft_values, (row, row, torch.zeros(2, 3), 0.1), "shapes differ"),
        (soft_values, (torch.zeros(3), column, 0.1), "shapes differ"),
    ]
    assert not_refused(lambda function, arguments: function(*arguments), cases, ValueError) == []
