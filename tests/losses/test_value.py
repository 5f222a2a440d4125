"""Value losses against numbers worked by hand."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from lightning_rl.losses import clipped_square_error, explained_variance, huber, td_targets, value_change_clipped_error


def test_explained_variance_of_the_golden_batch() -> None:
    """Errors 0 0 1: variance 2/9 of 2/3 → 1 − 1/3."""
    assert_close(explained_variance(torch.tensor([1.0, 2, 2]), torch.tensor([1.0, 2, 3])), torch.tensor(2 / 3))
    assert explained_variance(torch.zeros(3), torch.ones(3)).item() == 0.0
    assert explained_variance(torch.tensor([3.0, 2, 1]), torch.tensor([1.0, 2, 3])).item() < 0


def test_the_clipped_square_error_teaches_nothing_beyond_its_limit() -> None:
    """V = 0 1 5 −4 against ½ 1 1 0, limit 10: ¼, 0, 10, 10 → 5.0625; rows 2 and 3 are off by 4 > √10."""
    values = torch.tensor([0.0, 1, 5, -4], requires_grad=True)
    loss = clipped_square_error(values, torch.tensor([0.5, 1, 1, 0]), 10.0)
    loss.backward()
    assert_close(loss.detach(), torch.tensor(5.0625))
    assert values.grad is not None
    assert values.grad[2:].tolist() == [0.0, 0.0] and values.grad[0] != 0


def test_a_value_change_beyond_the_clip_teaches_nothing_more() -> None:
    """Old value 0, target 2, clip ½. V = 1: max(1, 1.5²) = 2.25 without gradient; V = .4: 1.6² with one; V = −1: 9 (the wrong way) with one."""
    values = torch.tensor([1.0, 0.4, -1.0], requires_grad=True)
    loss = value_change_clipped_error(values, torch.zeros(3), torch.full((3,), 2.0), 0.5)
    loss.backward()
    assert_close(loss.detach(), torch.tensor((2.25 + 2.56 + 9.0) / 3))
    assert values.grad is not None
    assert values.grad.ne(0).tolist() == [False, True, True]


def test_huber_is_square_inside_and_linear_outside() -> None:
    assert_close(huber(torch.tensor([0.5, 1.0, 2.0, -2.0])), torch.tensor([0.125, 0.5, 1.5, 1.5]))


def test_td_targets_bootstrap_all_but_terminated_rows_and_carry_no_gradient() -> None:
    next_values = torch.tensor([10.0, 10.0], requires_grad=True)
    targets = td_targets(torch.tensor([1.0, 1.0]), next_values, torch.tensor([False, True]), 0.9)
    assert_close(targets, torch.tensor([10.0, 1.0]))
    assert not targets.requires_grad


def test_shapes_that_would_broadcast_are_refused() -> None:
    one, column = torch.zeros(2), torch.zeros(2, 1)
    with pytest.raises(ValueError, match=r"\[\[2\], \[2, 1\]\]"):
        explained_variance(one, column)
    with pytest.raises(ValueError, match="shapes differ"):
        clipped_square_error(one, column, 1.0)
    with pytest.raises(ValueError, match="shapes differ"):
        value_change_clipped_error(one, one, column, 1.0)
