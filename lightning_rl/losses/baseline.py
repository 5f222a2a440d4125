"""A baseline for returns without a network: their fit over a batch by step and observation.

Any function of step and observation leaves the policy gradient's mean as it is (Williams 1992); a good one takes most
of its variance. Duan et al. 2016, arXiv:1604.06778, fit returns by observations, their squares and powers of the step.
Where the episodes of a batch all went alike, the mean at each step takes the place of the powers, which are never
exact: nothing is left then, and the policy stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["batch_baseline"]

EPISODES = 4  # at the same step have a mean
AGREEMENT = 0.01  # the share of chance in the means below which episodes went alike
ROWS_PER_FEATURE = 10  # with fewer, a fit would follow the noise of the returns
RIDGE = 1e-9  # relative to the square of each feature: features that always agree share their weight

Total = Callable[[Tensor], Tensor]  # the sum of a tensor over the ranks whose rows are one batch


def batch_baseline(
    returns: Tensor,
    steps: Tensor,
    observations: Tensor | None = None,
    *,
    total: Total = lambda own: own,
    longest: int | None = None,
) -> Tensor:
    """What rows at the same step, with such an observation, returned.

    Args:
        returns: returns from each row on, `[N]`.
        steps: integers ≥ 0 `[N]`, the step of the row within its episode.
        observations: `[N, D]`, preprocessed; they and their squares are features if the batch has ten rows for each.
            `None`: only the step counts.
        total: the total of several ranks; each calls this function with its own rows.
        longest: a number above the highest step of any rank; only with `total`.

    Returns:
        `[N]`, without a gradient.
    """
    exact, steps = returns.detach().double(), steps.long()
    features = (steps / 100.0).double().unsqueeze(1) ** torch.arange(4, device=steps.device)
    expected = _fit(features, exact, total)
    expected = expected + _shared_rest(exact - expected, steps, total, longest or int(steps.max()) + 1)
    if observations is not None:
        seen = observations.detach().double()
        expected = expected + _fit(torch.cat([features, seen, seen.square()], dim=1), exact - expected, total)
    return expected.to(returns.dtype)


def _shared_rest(rest: Tensor, steps: Tensor, total: Total, longest: int) -> Tensor:
    """The mean at each step `[N]` of what a fit left, where episodes agree on it; else 0.

    The means of n episodes vary by σ²/n by chance, with σ² the variance at a step: they agree if that is less than a
    hundredth of what their means do vary by.
    """
    rows = torch.stack([torch.ones_like(rest), rest, rest.square()])
    counts, sums, squares = total(rows.new_zeros(3, longest).index_add_(1, steps, rows)).unbind()
    several = counts >= EPISODES
    means = torch.where(several, sums / counts.clamp(min=1.0), 0.0)
    of_means = counts * means.square()
    within = torch.where(several, squares - of_means, 0.0).sum()
    chance = within / (counts[several] - 1.0).sum().clamp(min=1.0) * several.sum()
    return torch.where(chance < AGREEMENT * of_means.sum(), means, 0.0)[steps]


def _fit(features: Tensor, targets: Tensor, total: Total) -> Tensor:
    """The least-squares fit `[N]` of targets by features `[N, F]`, the first of which is 1; the mean, for few rows."""
    columns = torch.cat([features, targets.unsqueeze(1)], dim=1)
    sums = total(columns.T @ columns)
    size = features.shape[1]
    used = size if float(sums[0, 0]) >= ROWS_PER_FEATURE * size else 1
    products = sums[:used, :used]
    scale = products.diagonal().sqrt()
    scale = torch.where(scale > 0.0, scale, 1.0)
    ridge = RIDGE * torch.eye(used, dtype=sums.dtype, device=sums.device)
    weights = torch.linalg.solve(products / scale.outer(scale) + ridge, sums[:used, -1] / scale) / scale
    return features[:, :used] @ weights
