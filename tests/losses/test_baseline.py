"""The baseline from a batch, against slow means and numpy's least squares, and returns whose baseline is known."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from lightning_rl.losses import batch_baseline


def episodes(lengths: list[int], width: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Returns in the hundreds, steps, and observations of different scales."""
    generator = torch.Generator().manual_seed(sum(lengths))
    steps = torch.cat([torch.arange(length) for length in lengths])
    observations = torch.randn(len(steps), width, generator=generator) * torch.logspace(-2, 3, width)
    return 300 * torch.randn(len(steps), generator=generator) - 500, steps, observations


def fitted(columns: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Least squares; the mean, where the rows are fewer than ten for each column."""
    if len(targets) < 10 * columns.shape[1]:
        return np.full(len(targets), targets.mean())
    return columns @ np.linalg.lstsq(columns, targets, rcond=None)[0]


def shared(rest: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The mean of at least four episodes at a step, if chance makes a hundredth of what such means vary by, or less."""
    groups = [np.flatnonzero(steps == step) for step in np.unique(steps)]
    groups = [rows for rows in groups if len(rows) >= 4]
    expected = np.zeros(len(rest))
    if not groups:
        return expected
    within = sum(((rest[rows] - rest[rows].mean()) ** 2).sum() for rows in groups)
    variance = within / sum(len(rows) - 1 for rows in groups)
    of_means = sum(len(rows) * rest[rows].mean() ** 2 for rows in groups)
    for rows in groups:
        expected[rows] = rest[rows].mean() if variance * len(groups) < 0.01 * of_means else 0.0
    return expected


def slow_baseline(returns: Tensor, steps: Tensor, observations: Tensor | None) -> Tensor:
    r, t = returns.double().numpy(), steps.numpy()
    powers = (t[:, None] / 100) ** np.arange(4)
    expected = fitted(powers, r)
    expected = expected + shared(r - expected, t)
    if observations is not None:
        seen = observations.double().numpy()
        expected = expected + fitted(np.concatenate([powers, seen, seen**2], axis=1), r - expected)
    return torch.from_numpy(expected).float()


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("by_step", [0.0, 5000.0])  # how much returns depend on the step beyond its powers
@pytest.mark.parametrize(
    "lengths",
    [
        [200, 200, 200, 200],
        [200, 180, 150, 40, 30],  # no means where three or fewer are left
        [300],  # the powers alone
        [11, 10, 9, 12, 8],  # 50 rows: too few for the ten features of step and observation
        [8, 8, 8],  # 24 rows: too few for the powers
    ],
)
def test_the_baseline_is_a_fit_by_step_and_observation(lengths: list[int], by_step: float, seen: bool) -> None:
    returns, steps, observations = episodes(lengths)
    returns = returns + by_step * (7 * steps % 11)
    given = observations if seen else None
    assert_close(batch_baseline(returns, steps, given), slow_baseline(returns, steps, given), rtol=1e-3, atol=0.05)


@pytest.mark.parametrize(("noise", "taken"), [(0.0, True), (280.0, True), (286.0, False), (2000.0, False)])
def test_means_at_steps_are_taken_where_episodes_agree(noise: float, taken: bool) -> None:
    """Jumps by ±1000 vary by 10⁶, means of eight by an eighth of the noise's variance: a hundredth at 283."""
    generator = torch.Generator().manual_seed(0)
    steps = torch.arange(400).repeat(8)
    drawn = torch.randn(8, 400, generator=generator)
    drawn = (drawn - drawn.mean(0)) / drawn.std(0)  # exactly this noise at each step
    returns = 2000.0 * (steps % 2) + noise * drawn.flatten()
    assert bool(batch_baseline(returns, steps).std() > 900) is taken


def test_equal_episodes_leave_exactly_nothing() -> None:
    """Episodes that all fail say nothing about actions; scaled up, what rounding left would move the policy."""
    discounted = torch.tensor([-(1 - 0.99**left) / 0.01 for left in range(500, 0, -1)])
    returns, steps = discounted.repeat(8), torch.arange(500).repeat(8)
    _, _, observations = episodes([500] * 8)
    assert torch.equal(batch_baseline(returns, steps, observations), returns)


def test_returns_that_step_and_observation_explain_are_explained() -> None:
    _, steps, observations = episodes([100] * 6, width=2)
    returns = 3 + steps / 10 - 2 * observations[:, 0] + observations[:, 1].square() / 100
    assert_close(batch_baseline(returns, steps, observations), returns, rtol=1e-3, atol=0.05)


def test_features_that_always_agree_do_not_break_the_fit() -> None:
    """One-hot columns add up to the constant, and are their own squares; a column of zeros says nothing."""
    kinds = torch.arange(300) % 3
    observations = torch.cat([torch.nn.functional.one_hot(kinds, 3), torch.zeros(300, 1)], 1)
    returns = torch.tensor([5.0, -7.0, 100.0])[kinds]
    assert_close(batch_baseline(returns, torch.zeros(300), observations), returns, rtol=1e-4, atol=1e-3)


def test_ranks_that_add_their_sums_have_the_baseline_of_the_whole() -> None:
    """Two threads, each with the rows of some episodes, that wait for each other's sums."""
    returns, steps, observations = episodes([60, 50, 40, 30, 20])
    shares, barrier, sums = (slice(0, 110), slice(110, 200)), Barrier(2, timeout=20), [torch.zeros(())] * 2

    def of_rank(rank: int) -> Tensor:
        def total(own: Tensor) -> Tensor:
            sums[rank] = own
            barrier.wait()
            both = sums[0] + sums[1]
            barrier.wait()
            return both

        rows = shares[rank]
        return batch_baseline(returns[rows], steps[rows], observations[rows], total=total, longest=60)

    with ThreadPoolExecutor(2) as ranks:
        found = torch.cat(list(ranks.map(of_rank, range(2))))
    assert_close(found, batch_baseline(returns, steps, observations))
