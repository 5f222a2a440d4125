"""Estimates of a policy's value from episodes of another one.

Columns are episodes: `rewards [T, B]` and what goes with them begin at row 0, and `valid [T, B]` is False after the
last step. Every function gives a term for each episode, `[B]`; the estimate is the mean of the terms, or for weighted
importance sampling Σ terms / Σ weights, and `bootstrap_interval` says how far it may be off.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_rl.losses.policy_gradient import same_shape

__all__ = [
    "bootstrap_interval",
    "doubly_robust",
    "effective_sample_size",
    "episode_ratios",
    "importance_sampling",
    "per_decision_importance_sampling",
]


def importance_sampling(rewards: Tensor, log_ratios: Tensor, valid: Tensor, gamma: float) -> Tensor:
    """ρ Σ γᵗ rₜ with ρ = Π π(aₜ|sₜ) / μ(aₜ|sₜ) over the whole episode, `[B]`.

    Precup et al. 2000, "Eligibility traces for off-policy policy evaluation", eq. 4. Unbiased. Divided by the sum of
    `episode_ratios` instead of by their number, the sum of the terms is weighted importance sampling (eq. 5), which is
    biased in small samples and varies far less.

    Args:
        rewards: `[T, B]`.
        log_ratios: log π(a|s) − log μ(a|s), `[T, B]`, of the evaluated against the acting policy.
        valid: bool `[T, B]`, False after an episode's last step.
        gamma: discount in [0, 1].

    Raises:
        ValueError: the shapes differ.
    """
    same_shape(rewards, log_ratios, valid)
    return episode_ratios(log_ratios, valid) * (_discounts(rewards, gamma) * rewards.where(valid, 0.0)).sum(0)


def per_decision_importance_sampling(rewards: Tensor, log_ratios: Tensor, valid: Tensor, gamma: float) -> Tensor:
    """Σ γᵗ ρ₀…ₜ rₜ, `[B]`: each reward is weighted by the ratios of the steps until then. Unbiased.

    Precup et al. 2000, eq. 6.

    Args:
        rewards, log_ratios, valid, gamma: see `importance_sampling`.

    Raises:
        ValueError: the shapes differ.
    """
    same_shape(rewards, log_ratios, valid)
    ratios = log_ratios.where(valid, 0.0).cumsum(0).exp()
    return (_discounts(rewards, gamma) * ratios * rewards.where(valid, 0.0)).sum(0)


def doubly_robust(
    rewards: Tensor,
    log_ratios: Tensor,
    q_values: Tensor,
    values: Tensor,
    *,
    terminated: Tensor,
    valid: Tensor,
    gamma: float,
) -> Tensor:
    """V₀ of Vₜ = V̂(sₜ) + ρₜ (rₜ + γ Vₜ₊₁ − Q̂(sₜ, aₜ)), `[B]`; V̂ stands for what a time limit cuts off.

    Jiang and Li 2016, arXiv:1511.03722, eq. 10. Unbiased where the ratios are right whatever Q̂ is; the better Q̂, the
    less it varies.

    Args:
        rewards, log_ratios, valid, gamma: see `importance_sampling`.
        q_values: Q̂(s, a) of the recorded actions, `[T, B]`.
        values: V̂(s) = E Q̂(s, a) over the evaluated policy's actions, `[T+1, B]`; the row after the last step belongs
            to the final observation.
        terminated: bool `[T, B]`; V̂ is 0 after such a step.

    Raises:
        ValueError: the shapes differ.
    """
    same_shape(rewards, log_ratios, q_values, values[:-1], terminated, valid)
    estimate = values[-1]
    for t in range(len(rewards) - 1, -1, -1):
        following = estimate.masked_fill(terminated[t], 0.0)
        better = values[t] + log_ratios[t].exp() * (rewards[t] + gamma * following - q_values[t])
        estimate = better.where(valid[t], values[t])
    return estimate


def episode_ratios(log_ratios: Tensor, valid: Tensor) -> Tensor:
    """ρ = Π π(aₜ|sₜ) / μ(aₜ|sₜ) of each episode, `[B]`; their mean is 1 in the limit."""
    return log_ratios.where(valid, 0.0).sum(0).exp()


def effective_sample_size(ratios: Tensor) -> Tensor:
    """(Σ ρ)² / Σ ρ², from 1 to B: as many episodes of the evaluated policy would be worth about as much.

    Kong 1992, "A note on importance sampling using standardized weights".

    Args:
        ratios: the ratios of the episodes, `[B]`, not all 0.
    """
    return ratios.sum().square() / ratios.square().sum()


def bootstrap_interval(
    terms: Tensor,
    weights: Tensor | None = None,
    *,
    confidence: float = 0.9,
    resamples: int = 2000,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """The studentised bootstrap interval of Σ terms / Σ weights over episodes.

    Efron and Tibshirani 1993, "An introduction to the bootstrap", section 12.5: resampled estimates, in units of the
    standard error of their own resample, which follows skewed terms better than percentiles do.

    Args:
        terms: the terms of the episodes, `[B]`, at least two.
        weights: the weights of the episodes, `[B]`; `None`: 1, so that it is the interval of a mean.
        confidence: coverage aimed at, in (0, 1).
        resamples: how many.
        generator: draws them.

    Returns:
        The lower and the upper end, scalars; both the estimate itself if all terms are proportional to the weights.
    """
    weights = torch.ones_like(terms) if weights is None else weights
    at_once = max(1, 2**20 // len(terms))  # resamples, so that memory does not grow with their product

    def estimate_and_error(terms: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        total = weights.sum(-1)
        estimate = terms.sum(-1) / total
        rest = terms - estimate.unsqueeze(-1) * weights
        return estimate, rest.square().sum(-1).sqrt() / total

    estimate, error = estimate_and_error(terms, weights)
    parts = []
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start), len(terms)
        drawn = torch.randint(len(terms), size, generator=generator, device=terms.device)
        parts.append(torch.stack(estimate_and_error(terms[drawn], weights[drawn])))
    resampled, errors = torch.cat(parts, 1)
    standardized = ((resampled - estimate) / errors)[errors > 0]
    if len(standardized) == 0:
        return estimate, estimate
    tail = (1.0 - confidence) / 2.0
    ends = torch.quantile(standardized, torch.tensor([1.0 - tail, tail], dtype=terms.dtype, device=terms.device))
    low, high = estimate - ends * error
    return low, high


def _discounts(rewards: Tensor, gamma: float) -> Tensor:
    """γᵗ, `[T, 1]`."""
    return gamma ** torch.arange(len(rewards), dtype=rewards.dtype, device=rewards.device).unsqueeze(1)
