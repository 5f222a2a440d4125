"""Value targets and losses, compared with numbers worked by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from lightning_rl.losses import (
    c51_clip_fraction,
    c51_projection,
    clipped_square_error,
    double_q_values,
    dueling_q_values,
    expectile,
    explained_variance,
    huber,
    mean_huber,
    quantile_huber,
    td_targets,
    value_change_clipped_error,
    value_rescale,
    value_rescale_inverse,
)
from tests.refusals import not_refused


def test_explained_variance_of_the_golden_batch() -> None:
    """Errors 0 0 1: variance 2/9 of 2/3 → 1 − 1/3."""
    assert_close(explained_variance(torch.tensor([1.0, 2, 2]), torch.tensor([1.0, 2, 3])), torch.tensor(2 / 3))
    assert explained_variance(torch.zeros(3), torch.ones(3)).item() == 0.0
    assert not explained_variance(torch.zeros(3, requires_grad=True), torch.arange(3.0)).requires_grad
    assert explained_variance(torch.tensor([3.0, 2, 1]), torch.tensor([1.0, 2, 3])).item() < 0


def test_the_clipped_square_error_has_no_gradient_beyond_its_limit() -> None:
    """V = 0 1 5 −4 against ½ 1 1 0, limit 10: ¼, 0, 10, 10 → 5.0625; rows 2 and 3 are off by 4 > √10."""
    values = torch.tensor([0.0, 1, 5, -4], requires_grad=True)
    loss = clipped_square_error(values, torch.tensor([0.5, 1, 1, 0]), 10.0)
    loss.backward()
    assert_close(loss.detach(), torch.tensor(5.0625))
    assert values.grad is not None
    assert values.grad[2:].tolist() == [0.0, 0.0] and values.grad[0] != 0


def test_a_value_change_beyond_the_clip_has_no_gradient() -> None:
    """Old value 7, clip ½. Target 9: V = 8 has max(1, 1.5²) without gradient, V = 7.4 has 1.6² and V = 6 has 3² with
    one. Target 4: V = 6 has max(2², 2.5²) without."""
    values = torch.tensor([8.0, 7.4, 6.0, 6.0], requires_grad=True)
    loss = value_change_clipped_error(values, torch.full((4,), 7.0), torch.tensor([9.0, 9.0, 9.0, 4.0]), 0.5)
    loss.backward()
    assert_close(loss.detach(), torch.tensor((2.25 + 2.56 + 9.0 + 6.25) / 4))
    assert values.grad is not None
    assert values.grad.ne(0).tolist() == [False, True, True, False]


def test_huber_is_square_inside_and_linear_outside() -> None:
    errors = torch.tensor([0.5, 1.0, 2.0, -2.0])
    assert_close(huber(errors), torch.tensor([0.125, 0.5, 1.5, 1.5]))
    assert_close(huber(errors, None), torch.tensor([0.125, 0.5, 2.0, 2.0]))
    assert_close(mean_huber(errors), torch.tensor(3.625 / 4))
    assert_close(mean_huber(errors, weights=torch.tensor([8.0, 0.0, 2.0, 0.0])), torch.tensor(4.0 / 4))


def test_td_targets_bootstrap_all_but_terminated_rows_and_carry_no_gradient() -> None:
    next_values = torch.tensor([10.0, 10.0], requires_grad=True)
    targets = td_targets(torch.tensor([1.0, 1.0]), next_values, torch.tensor([False, True]), 0.9)
    assert_close(targets, torch.tensor([10.0, 1.0]))
    assert not targets.requires_grad


def test_td_targets_of_a_terminated_state_without_legal_actions_are_the_reward() -> None:
    targets = td_targets(torch.tensor([1.0]), torch.tensor([-math.inf]), torch.tensor([True]), torch.tensor([0.9]))
    assert targets.tolist() == [1.0]


def test_double_q_takes_the_choice_of_one_network_and_the_value_of_the_other() -> None:
    """Row 0 chooses action 1 (worth 5); in row 1 action 2 is illegal, so action 0 (worth 7) is chosen."""
    online = torch.tensor([[1.0, 2.0, 0.0], [1.0, 0.0, -math.inf]])
    assert double_q_values(online, torch.tensor([[9.0, 5.0, 4.0], [7.0, 8.0, 9.0]])).tolist() == [5.0, 7.0]


def test_expectile_weighs_the_two_sides() -> None:
    """τ = .8: .8·1 above, .2·1 below; τ = ½ is half the square."""
    assert_close(expectile(torch.tensor([1.0, -1.0, 2.0]), 0.8), torch.tensor([0.8, 0.2, 3.2]))
    assert_close(expectile(torch.tensor([3.0, -3.0]), 0.5), torch.tensor([4.5, 4.5]))
    assert_close(expectile(torch.tensor([0.5, -0.5]), 0.8), torch.tensor([0.2, 0.05]))


ATOMS, NEXT = torch.linspace(-2, 2, 5), torch.tensor([[0.1, 0.2, 0.4, 0.2, 0.1]])


@pytest.mark.parametrize(
    ("reward", "terminated", "projected"),
    [
        (0.5, False, [0.03, 0.15, 0.32, 0.32, 0.18]),
        (0.5, True, [0, 0, 0.5, 0.5, 0]),
        (1.0, True, [0, 0, 0, 1, 0]),
        (5.0, False, [0, 0, 0, 0, 1]),
        (-5.0, True, [1, 0, 0, 0, 0]),
    ],
)
def test_c51_projection_shares_mass_between_neighbors(reward: float, terminated: bool, projected: list[float]) -> None:
    """Atoms −2 −1 0 1 2, γ = .9. From r = ½ they land on −1.3 −.4 .5 1.4 2 (2.3 is cut): −1.3 gives .3 of .1 to −2,
    .7 to −1, and so on; what falls on an atom stays whole."""
    got = c51_projection(NEXT, torch.tensor([reward]), torch.tensor([terminated]), 0.9, ATOMS)
    assert_close(got, torch.tensor([projected], dtype=torch.float32), atol=1e-6, rtol=0)


@settings(derandomize=True, max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 51), st.floats(-30, 30), st.floats(0, 1))
def test_c51_projection_keeps_the_mass_and_the_mean(seed: int, count: int, reward: float, discount: float) -> None:
    """Nothing is lost, nothing is negative; sharing between neighbors keeps the mean of what is not cut."""
    atoms = torch.linspace(-10, 10, count, dtype=torch.float64)
    mass = torch.rand(3, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).softmax(-1)
    rewards, discounts = (torch.full((3,), x, dtype=torch.float64) for x in (reward, discount))
    projected = c51_projection(mass, rewards, torch.tensor([False, True, False]), discounts, atoms)
    assert (projected >= 0).all()
    assert_close(projected.sum(-1), torch.ones(3, dtype=torch.float64))
    kept = (discounts * torch.tensor([1, 0, 1]))[:, None] * atoms + reward
    assert_close((projected * atoms).sum(-1), (mass * kept.clamp(-10, 10)).sum(-1), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(
    ("reward", "terminated", "beyond"),
    [(0.5, False, 0.0), (1.0, False, 0.1), (2.4, True, 0.0), (-2.0, True, 0.0), (-5.0, True, 1.0)],
)
def test_the_mass_beyond_the_atoms_is_measured(reward: float, terminated: bool, beyond: float) -> None:
    """Atoms −2 … 2, γ = .9. From r = 1 the last lands on 2.8 with its .1; 2.3 and 2.4 are within half an atom of 2."""
    got = c51_clip_fraction(NEXT, torch.tensor([reward]), torch.tensor([terminated]), 0.9, ATOMS)
    assert_close(got, torch.tensor([beyond]))


def test_how_far_beyond_is_counted_in_distances_of_the_atoms() -> None:
    """Atoms 0, 2, 4 moved by 3: 5 is half a distance beyond, 7 is more, with .2 of the mass; no gradient."""
    mass = torch.tensor([[0.5, 0.3, 0.2]], requires_grad=True)
    got = c51_clip_fraction(mass, torch.tensor([3.0]), torch.tensor([False]), 1.0, torch.tensor([0.0, 2.0, 4.0]))
    assert_close(got, torch.tensor([0.2]))
    assert not got.requires_grad


def test_quantile_huber_of_a_batch_worked_by_hand() -> None:
    """Quantiles 0 and 2 at τ = ¼, ¾; targets 1 and −1, each twice. Errors 1 −1 | −1 −3, Huber ½ ½ | ½ 2½,
    weights ¼ ¾ | ¼ ¼: means (⅛ + ⅜)/2 = ¼ and (⅛ + ⅝)/2 = ⅜; their sum is ⅝. With κ = 2, Huber/κ is ¼ ¼ | ¼ 2."""
    quantiles = torch.tensor([[0.0, 2.0]], requires_grad=True)
    targets = torch.tensor([[1.0, -1.0, 1.0, -1.0]], requires_grad=True)
    loss = quantile_huber(quantiles, torch.tensor([0.25, 0.75]), targets)
    assert_close(loss, torch.tensor([0.625]))
    assert_close(quantile_huber(quantiles, torch.tensor([[0.25, 0.75]]), targets), loss)
    assert_close(quantile_huber(quantiles, torch.tensor([0.25, 0.75]), targets, kappa=2.0), torch.tensor([13 / 32]))
    loss.sum().backward()
    assert targets.grad is None
    assert_close(quantiles.grad, torch.tensor([[0.25, 0.25]]))


def test_quantile_huber_is_smallest_at_the_quantiles() -> None:
    """Of the samples 0 … 100 the quartile is 25 and three quarters lie below 75: the gradient turns there."""
    samples, taus = torch.arange(101.0)[None], torch.tensor([0.25, 0.75])
    for shift, sign in ((-3.0, -1), (3.0, 1)):
        quantiles = (torch.tensor([[25.0, 75.0]]) + shift).requires_grad_()
        quantile_huber(quantiles, taus, samples, kappa=0.01).sum().backward()
        assert quantiles.grad is not None
        assert (quantiles.grad.sign() == sign).all()


def test_value_rescale_of_the_golden_numbers() -> None:
    """h(10) = √11 − 1 + .01; h(−3) = −(2 − 1) − .003; h(0) = 0."""
    values = torch.tensor([10.0, -3.0, 0.0])
    assert_close(value_rescale(values), torch.tensor([2.3266248, -1.003, 0.0]), atol=1e-6, rtol=0)


def test_value_rescale_inverse_is_the_published_formula() -> None:
    values, epsilon = torch.linspace(-50, 50, 101, dtype=torch.float64), 1e-2
    fraction = ((1 + 4 * epsilon * (values.abs() + 1 + epsilon)).sqrt() - 1) / (2 * epsilon)
    assert_close(value_rescale_inverse(values, epsilon), values.sign() * (fraction.square() - 1))


@settings(derandomize=True, max_examples=50, deadline=None)
@given(st.floats(-1e6, 1e6, width=32, allow_subnormal=False))
def test_rescaling_there_and_back_is_the_identity_in_float32(value: float) -> None:
    given_value = torch.tensor(value)
    assert_close(value_rescale_inverse(value_rescale(given_value)), given_value, rtol=1e-5, atol=0)


def test_value_rescale_has_its_slope_at_zero() -> None:
    """h'(0) = ½ + ε."""
    value = torch.tensor(0.0, requires_grad=True)
    value_rescale(value).backward()
    assert_close(value.grad, torch.tensor(0.501))


def test_shapes_that_would_broadcast_are_refused() -> None:
    one, column, zeros = torch.zeros(2), torch.zeros(2, 1), torch.zeros
    flags = one.bool()
    shapes, quantiles, atoms = "shapes differ", r"expected \[N, Q\]", r"expected \[N, Z\]"
    cases: list[tuple[Any, tuple[Any, ...], str]] = [
        (explained_variance, (one, column), r"\[\[2\], \[2, 1\]\]"),
        (clipped_square_error, (one, column, 1.0), shapes),
        (value_change_clipped_error, (one, one, column, 1.0), shapes),
        (td_targets, (one, column, flags, 0.9), shapes),
        (double_q_values, (column, zeros(2, 2)), shapes),
        (c51_projection, (zeros(2, 4), one, flags, 0.9, ATOMS), atoms),
        (c51_projection, (NEXT, zeros(1), zeros(1, 1, dtype=torch.bool), 0.9, ATOMS), shapes),
        (quantile_huber, (zeros(2, 3), zeros(4), zeros(2, 3)), quantiles),
        (quantile_huber, (zeros(2, 3), zeros(3), zeros(3, 3)), quantiles),
        (quantile_huber, (zeros(2, 3), zeros(3), zeros(2)), quantiles),
        (quantile_huber, (zeros(2, 3, 1), zeros(3, 1), zeros(2, 3)), quantiles),
        (dueling_q_values, (zeros(2, 4), zeros(2, 3, 4, 5)), r"expected \[N, Z\] and \[N, A, Z\]"),
        (dueling_q_values, (one, zeros(2, 3, 1)), r"\[N, Z\]"),
    ]
    assert not_refused(lambda function, arguments: function(*arguments), cases, ValueError) == []


def test_quantile_huber_weighs_errors_by_their_sign_however_small() -> None:
    """Quantile 0 at τ = ¼, targets ½, 2, −½: ¼ · ⅛, ¼ · 1.5 and ¾ · ⅛, of which the mean is ½ / 3."""
    found = quantile_huber(torch.zeros(1, 1), torch.tensor([0.25]), torch.tensor([[0.5, 2.0, -0.5]]))
    assert_close(found, torch.tensor([0.5 / 3]))


def test_two_quantiles_are_quantiles() -> None:
    """2 + ½ · (1, 3)."""
    targets = td_targets(torch.full((1,), 2.0), torch.tensor([[1.0, 3.0]]), torch.tensor([False]), 0.5)
    assert_close(targets, torch.tensor([[2.5, 3.5]]))


def test_td_targets_of_quantiles_are_those_of_each_quantile() -> None:
    """1 + 0.5 · (2 4 6), and a terminated row's reward alone."""
    quantiles, terminated = torch.tensor([[2.0, 4.0, 6.0]] * 2), torch.tensor([False, True])
    targets = td_targets(torch.ones(2), quantiles, terminated, torch.tensor([0.5, 0.9]))
    assert_close(targets, torch.tensor([[2.0, 3.0, 4.0], [1.0, 1.0, 1.0]]))


def test_dueling_takes_the_mean_over_possible_actions_only() -> None:
    """V = 1, A = 1 2 −∞: 1 + 1 − 1.5, 1 + 2 − 1.5, −∞; with A = 1 2 3: 0 1 2."""
    advantages = torch.tensor([[1.0, 2.0, -torch.inf], [1.0, 2.0, 3.0]]).unsqueeze(2)
    expected = torch.tensor([[0.5, 1.5, -torch.inf], [0.0, 1.0, 2.0]]).unsqueeze(2)
    assert_close(dueling_q_values(torch.ones(2, 1), advantages), expected)


def test_dueling_keeps_the_atoms_apart() -> None:
    """V = 1 and 10 of two atoms, A = 1 2 3 and 0 6 3: 0 1 2, and 7 13 10."""
    advantages = torch.tensor([[[1.0, 0.0], [2.0, 6.0], [3.0, 3.0]]])
    expected = torch.tensor([[[0.0, 7.0], [1.0, 13.0], [2.0, 10.0]]])
    assert_close(dueling_q_values(torch.tensor([[1.0, 10.0]]), advantages), expected)
