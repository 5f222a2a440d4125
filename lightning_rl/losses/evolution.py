"""Weights of perturbations by the returns of perturbed policies, for ES and ARS."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["centered_ranks", "evolution_weights", "random_search_weights"]


def centered_ranks(returns: Tensor) -> Tensor:
    """Ranks from −½ (lowest) to ½ (highest), evenly spaced; equal returns share the mean of their ranks.

    Salimans et al. 2017, arXiv:1703.03864, section 2.1 (fitness shaping). With shared ranks, a population of equal
    returns has weights of 0, instead of weights by its order.

    Args:
        returns: the returns of any shape, at least two.

    Returns:
        The same shape; their sum is 0.
    """
    _, places, counts = torch.unique(returns, return_inverse=True, return_counts=True)
    counts = counts.to(torch.float64)
    ranks = counts.cumsum(0) - counts + (counts - 1) / 2
    return (ranks[places] / (returns.numel() - 1) - 0.5).to(torch.get_default_dtype())


def evolution_weights(returns: Tensor, sigma: float) -> Tensor:
    """Weights wᵢ, so that Σ wᵢ εᵢ estimates the gradient of the mean ranked return of θ + σε.

    Salimans et al. 2017, arXiv:1703.03864, algorithm 1, with mirrored perturbations and ranks in place of returns:
    wᵢ = (rank(F(θ + σεᵢ)) − rank(F(θ − σεᵢ))) / (2nσ).

    Args:
        returns: F(θ + σεᵢ) and F(θ − σεᵢ), `[n, 2]`.
        sigma: σ > 0.

    Returns:
        `[n]`.
    """
    ranks = centered_ranks(returns)
    return (ranks[:, 0] - ranks[:, 1]) / (2 * len(returns) * sigma)


def random_search_weights(returns: Tensor, top: int) -> Tensor:
    """Weights of the directions δ in a step of augmented random search, Σ wᵢ δᵢ.

    Mania, Guy, Recht 2018, arXiv:1803.07055, algorithm 2, line 7: wᵢ = (rᵢ⁺ − rᵢ⁻) / (b σ_R) for the b directions whose
    better return is highest, else 0; σ_R is the deviation of their 2b returns. Where these are all equal, 0.

    Args:
        returns: r⁺ and r⁻, `[n, 2]`.
        top: b, from 1 to n; of equally good directions the first are taken.

    Returns:
        `[n]`.
    """
    best = returns.max(1).values.argsort(descending=True, stable=True)[:top]
    kept = returns[best]
    deviation = kept.std(correction=0)
    weights = torch.zeros(len(returns), dtype=returns.dtype, device=returns.device)
    if deviation > 0:
        weights[best] = (kept[:, 0] - kept[:, 1]) / (top * deviation)
    return weights
