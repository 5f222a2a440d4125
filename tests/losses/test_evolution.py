"""Weights of perturbations (ES, ARS), worked by hand, and their invariants."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from lightning_rl.losses import centered_ranks, evolution_weights, random_search_weights


def pairs(smallest: int = 1) -> st.SearchStrategy[Tensor]:
    numbers = st.integers(-1000, 1000).map(float)
    rows = st.lists(st.tuples(numbers, numbers), min_size=smallest, max_size=8)
    return rows.map(lambda entries: torch.tensor(entries, dtype=torch.float64))


def test_ranks_are_evenly_spaced_whatever_the_returns_are() -> None:
    """Five returns: ranks 0 … 4 over 4, minus ½."""
    returns = torch.tensor([7.0, -1e9, 8.0, 1e9, 7.5])
    assert_close(centered_ranks(returns), torch.tensor([-0.25, -0.5, 0.25, 0.5, 0.0]))


def test_equal_returns_share_the_mean_of_their_ranks() -> None:
    """Ranks 0 and 3; 1 and 2 are shared: 1½ each. Over 3, minus ½."""
    assert_close(centered_ranks(torch.tensor([[5.0, 1.0], [9.0, 5.0]])), torch.tensor([[0.0, -0.5], [0.5, 0.0]]))


def test_a_direction_weighs_by_the_difference_of_its_two_ranks() -> None:
    """Ranks of 9, 1, 3, 5: ½, −½, −1/6, 1/6. n = 2, σ = ⅛: the differences 1 and −⅓ over 2 · 2 · ⅛ = ½."""
    returns = torch.tensor([[9.0, 1.0], [3.0, 5.0]])
    assert_close(evolution_weights(returns, sigma=0.125), torch.tensor([2.0, -2 / 3]))


def test_the_estimate_of_a_linear_function_is_its_gradient() -> None:
    """F(θ ± σε) = ±σ g·ε: E[g·ε ε] = g, and ranks keep its direction. A flipped sign would turn it around."""
    generator = torch.Generator().manual_seed(0)
    gradient = torch.tensor([3.0, -1.0, 0.0, 2.0])
    noise = torch.randn(4000, 4, generator=generator)
    scores = noise @ gradient
    estimate = evolution_weights(torch.stack([scores, -scores], 1), sigma=0.1) @ noise
    assert_close(estimate / estimate.norm(), gradient / gradient.norm(), atol=0.03, rtol=0)
    assert estimate @ gradient > 0


def test_random_search_takes_the_directions_whose_better_side_is_best() -> None:
    """Better sides 4, 10, 8; b = 2 keeps the last two: returns 10, 2, 0, 8, mean 5, σ = √17."""
    returns = torch.tensor([[4.0, 3.0], [10.0, 2.0], [0.0, 8.0]])
    deviation = 17**0.5
    assert_close(random_search_weights(returns, top=2), torch.tensor([0.0, 8.0, -8.0]) / (2 * deviation))


def test_of_equally_good_directions_random_search_takes_the_first() -> None:
    """Of 1000 with returns 1 and 0 the first 3: σ = ½, so 1 / (3 · ½)."""
    weights = random_search_weights(torch.tensor([[1.0, 0.0]]).expand(1000, 2), top=3)
    assert_close(weights[:3], torch.full((3,), 2 / 3))
    assert not weights[3:].any()


def test_random_search_with_all_directions() -> None:
    """Returns 1, 3 and 5, 7: mean 4, σ = √5; −2 each over 2 √5."""
    returns = torch.tensor([[1.0, 3.0], [5.0, 7.0]])
    assert_close(random_search_weights(returns, top=2), torch.full((2,), -1 / 5**0.5))


@given(pairs(2))
def test_weights_turn_around_with_the_sides(returns: Tensor) -> None:
    for weigh in (lambda r: evolution_weights(r, 0.1), lambda r: random_search_weights(r, len(r))):
        assert_close(weigh(returns.flip(1)), -weigh(returns))


@given(pairs(1), st.floats(0.5, 20), st.integers(-50, 50))
def test_scale_and_offset_of_returns_do_not_count(returns: Tensor, scale: float, offset: int) -> None:
    changed = scale * returns + offset
    assert_close(evolution_weights(changed, 0.1), evolution_weights(returns, 0.1))
    assert_close(random_search_weights(changed, len(returns)), random_search_weights(returns, len(returns)))


@given(st.integers(1, 6), st.integers(-9, 9))
def test_a_population_of_equal_returns_has_zero_weights(count: int, value: int) -> None:
    returns = torch.full((count, 2), float(value))
    assert not evolution_weights(returns, 0.1).any() and not random_search_weights(returns, count).any()


@given(pairs(1))
def test_ranks_are_centered_and_bounded(returns: Tensor) -> None:
    ranks = centered_ranks(returns)
    assert_close(ranks.sum(), torch.tensor(0.0), atol=1e-5, rtol=0)
    assert float(ranks.abs().max()) <= 0.5
