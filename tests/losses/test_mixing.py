"""Mixing functions against numbers worked by hand and against slow loops."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from lightning_rl.losses.mixing import mean_over_present, monotonic_mix, sum_mix
from tests.refusals import not_refused


def test_monotonic_mix_by_hand() -> None:
    """q = (1, −2), |W| = ((2, 1), (1, 3)), b = (0.5, 0): hidden ELU(2 − 2 + 0.5) = 0.5 and ELU(1 − 6) = e⁻⁵ − 1.

    |w| = (3, 2), v = −1: 3 · 0.5 + 2 (e⁻⁵ − 1) − 1 = −1.5 + 2 e⁻⁵.
    """
    numbers = [[1.0, -2.0]], [[[-2.0, 1.0], [1.0, -3.0]]], [[0.5, 0.0]], [[3.0, -2.0]], [-1.0]
    found = monotonic_mix(*map(torch.tensor, numbers))
    assert_close(found, torch.tensor([-1.5 + 2 * math.exp(-5)]))


def test_monotonic_mix_equals_a_loop() -> None:
    torch.manual_seed(0)
    rows, members, width = 5, 3, 4
    q, first, first_bias = torch.randn(rows, members), torch.randn(rows, members, width), torch.randn(rows, width)
    last, last_bias = torch.randn(rows, width), torch.randn(rows)
    expected = []
    for row in range(rows):
        total = last_bias[row].item()
        for unit in range(width):
            below = first_bias[row, unit].item()
            for member in range(members):
                below += abs(first[row, member, unit].item()) * q[row, member].item()
            total += abs(last[row, unit].item()) * (below if below > 0 else math.exp(below) - 1)
        expected.append(total)
    assert_close(monotonic_mix(q, first, first_bias, last, last_bias), torch.tensor(expected))


@pytest.mark.parametrize("seed", range(5))
def test_a_higher_value_of_a_member_never_lowers_the_mix(seed: int) -> None:
    torch.manual_seed(seed)
    shapes = [(64, 4), (64, 4, 8), (64, 8), (64, 8), (64,)]
    q, *weights = (10 ** (torch.randn(()) / 2) * torch.randn(shape) for shape in shapes)
    q.requires_grad_(True)
    low = monotonic_mix(q, *weights)
    assert bool((torch.autograd.grad(low.sum(), q)[0] >= 0).all())
    assert bool((monotonic_mix(q + torch.rand(q.shape), *weights) >= low).all())


def test_sum_mix_adds_the_members() -> None:
    assert_close(sum_mix(torch.tensor([[1.0, 2.0, -4.0], [0.5, 0.0, 0.0]])), torch.tensor([-1.0, 0.5]))


def test_mean_over_present_ignores_absent_members_and_rows_without_any() -> None:
    values = torch.tensor([[1.0, torch.nan, 3.0], [torch.nan] * 3], requires_grad=True)
    present = torch.tensor([[True, False, True], [False] * 3])
    found = mean_over_present(values, present)
    assert_close(found, torch.tensor([2.0, 0.0]))
    found.sum().backward()
    assert_close(values.grad, torch.tensor([[0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]))
    assert_close(mean_over_present(torch.tensor([[1.0, 2.0]]), None), torch.tensor([1.5]))


def test_shapes_that_would_broadcast_are_refused() -> None:
    q, first, bias, last, last_bias = (torch.zeros(shape) for shape in [(2, 3), (2, 3, 4), (2, 4), (2, 4), (2,)])
    cases: list[tuple[Any, tuple[Any, ...], str]] = [
        (monotonic_mix, (q, first[:, :1], bias, last, last_bias), "fit"),
        (monotonic_mix, (q, first, bias, last, last_bias.unsqueeze(1)), "fit"),
        (monotonic_mix, (q, first, bias[:1], last, last_bias), "differ"),
        (mean_over_present, (q, q[:, :1] > 0), "differ"),
    ]
    assert not_refused(lambda function, arguments: function(*arguments), cases, ValueError) == []
