"""The linear baseline, against numpy's least squares and returns whose fit is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from lightning_rl.losses import baseline_features, fit_linear, squares_and_products


def fit(observations: Tensor, steps: Tensor, returns: Tensor) -> Tensor:
    features = baseline_features(steps, observations)
    return fit_linear(features, squares_and_products(features, returns))


def batch(rows: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Observations of different scales, steps of episodes of 200, returns in the hundreds."""
    generator = torch.Generator().manual_seed(rows)
    observations = torch.randn(rows, width, generator=generator) * torch.logspace(-2, 3, width)
    return observations, torch.arange(rows) % 200, 300 * torch.randn(rows, generator=generator) - 500


def test_the_fit_is_numpys_least_squares() -> None:
    observations, steps, returns = batch(400, 3)
    flat, t = observations.double().numpy(), (steps.double() / 100).numpy()[:, None]
    columns = np.concatenate([t**0, t, t**2, t**3, flat, flat**2], axis=1)
    weights, *_ = np.linalg.lstsq(columns, returns.double().numpy(), rcond=None)
    assert_close(fit(observations, steps, returns), torch.from_numpy(columns @ weights).float(), rtol=1e-3, atol=0.05)


def test_returns_that_are_a_function_of_the_features_are_fitted_exactly() -> None:
    observations, steps, _ = batch(400, 2)
    returns = 3 + steps / 10 - 2 * observations[:, 0] + observations[:, 1].square() / 100
    assert_close(fit(observations, steps, returns), returns, rtol=1e-3, atol=0.05)


@pytest.mark.parametrize(("rows", "used"), [(39, 1), (40, 4), (99, 4), (100, 10)])
def test_a_feature_needs_ten_rows(rows: int, used: int) -> None:
    """Three numbers of an observation: ten features. Fewer rows leave the four of the step, then the mean."""
    observations, steps, returns = batch(rows, 3)
    columns = baseline_features(steps, observations)[:, :used]
    weights = torch.linalg.lstsq(columns, returns.double().unsqueeze(1), driver="gelsd").solution
    assert_close(fit(observations, steps, returns), (columns @ weights).squeeze(1).float(), rtol=1e-3, atol=0.05)


def test_without_observations_the_step_alone_has_features() -> None:
    assert_close(
        baseline_features(torch.tensor([50, 300])), torch.tensor([[1, 0.5, 0.25, 0.125], [1, 3, 9, 27]]).double()
    )


def test_features_that_always_agree_do_not_break_the_fit() -> None:
    """One-hot columns add up to the constant, and are their own squares; a column of zeros says nothing."""
    kinds = torch.arange(300) % 3
    observations = torch.cat([torch.nn.functional.one_hot(kinds, 3), torch.zeros(300, 1)], 1)
    returns = torch.tensor([5.0, -7.0, 100.0])[kinds]
    assert_close(fit(observations, torch.zeros(300), returns), returns, rtol=1e-4, atol=1e-3)


def test_sums_of_parts_fit_as_the_whole() -> None:
    observations, steps, returns = batch(400, 3)
    features = baseline_features(steps, observations)
    parts = zip(features.split(150), returns.split(150), strict=True)
    total = torch.stack([squares_and_products(*part) for part in parts]).sum(0)
    assert_close(fit_linear(features[:150], total), fit(observations, steps, returns)[:150])
