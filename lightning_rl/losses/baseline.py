"""A baseline for returns without a network: their least-squares fit over a batch by features of step and observation.

Duan et al. 2016, arXiv:1604.06778 (its linear baseline). The sums of squares and products are all that the
fit needs of a batch, so those of several ranks can be added.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["baseline_features", "fit_linear", "squares_and_products"]

OF_TIME = 4  # features that are a polynomial in the step
ROWS_PER_FEATURE = 10  # with fewer the fit would follow the noise of the returns, and take it from the advantages
RIDGE = 1e-9  # relative to the square of each feature: features that always agree share their weight


def baseline_features(steps: Tensor, observations: Tensor | None = None) -> Tensor:
    """Columns 1, t, t², t³ with t in hundreds of steps, then observations and their squares.

    Args:
        steps: step within the episode, `[N]`.
        observations: `[N, D]`, preprocessed; `None` leaves the four of the step.

    Returns:
        `[N, 4 + 2D]` in double precision.
    """
    time = steps.double().unsqueeze(1) / 100.0
    columns = [torch.ones_like(time), time, time.square(), time**3]
    if observations is not None:
        exact = observations.detach().double()
        columns += [exact, exact.square()]
    return torch.cat(columns, dim=1)


def squares_and_products(features: Tensor, returns: Tensor) -> Tensor:
    """ZᵀZ `[F + 1, F + 1]` of the columns Z: features `[N, F]`, and returns `[N]`."""
    columns = torch.cat([features, returns.detach().double().unsqueeze(1)], dim=1)
    return columns.T @ columns


def fit_linear(features: Tensor, sums: Tensor) -> Tensor:
    """The fitted returns `[N]` of rows with these features.

    As many features are used as have ten rows each: all, the four of the step, or the constant (the mean return).

    Args:
        features: `[N, F]` of `baseline_features`.
        sums: `squares_and_products` of the rows to fit, among them these.
    """
    rows = float(sums[0, 0])
    used = next((size for size in (features.shape[1], OF_TIME) if rows >= ROWS_PER_FEATURE * size), 1)
    products, targets = sums[:used, :used], sums[:used, -1]
    scale = products.diagonal().sqrt()
    scale = torch.where(scale > 0.0, scale, 1.0)
    ridge = RIDGE * torch.eye(used, dtype=sums.dtype, device=sums.device)
    weights = torch.linalg.solve(products / scale.outer(scale) + ridge, targets / scale) / scale
    return (features[:, :used] @ weights).to(torch.get_default_dtype())
