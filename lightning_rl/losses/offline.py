"""Losses of algorithms that learn from a fixed data set and must not trust values of actions that it does not hold."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_rl.losses.policy_gradient import same_shape

__all__ = ["advantage_weights", "conservative_gap", "regularized_policy_loss"]


def advantage_weights(advantages: Tensor, beta: float | Tensor, limit: float) -> Tensor:
    """min(exp(β A), limit), elementwise: the weights of log π(a|s) in advantage-weighted regression; no gradient.

    Wang et al. 2018 (MARWIL), NeurIPS, eq. 5; Nair et al. 2020 (AWAC), arXiv:2006.09359, eq. 13; Kostrikov et al. 2021
    (IQL), arXiv:2110.06169, eq. 7. The limit is that of the authors' programs.

    Args:
        advantages: A(s, a), of any shape.
        beta: inverse temperature, ≥ 0, in units of 1 / `advantages`; 0 gives 1 everywhere.
        limit: largest weight, > 0.
    """
    return (beta * advantages.detach()).exp().clamp(max=limit)


def conservative_gap(scores: Tensor, q_values: Tensor, temperature: float = 1.0) -> Tensor:
    """T · log Σₐ exp((Q(s, a) − log μ(a|s)) / T) − Q(s, a_data): how far other actions are valued above the recorded.

    Kumar et al. 2020 (CQL), arXiv:2006.04779, eq. 4 and appendix F, with the temperature of the authors' program.

    Args:
        scores: Q(s, a) of every discrete action, `[…, A]`, −∞ for forbidden ones; or Q(s, a) − log μ(a|s) of actions
            sampled from densities μ.
        q_values: Q(s, a_data), `[…]`.
        temperature: T > 0; towards 0 the first term becomes the maximum.

    Returns:
        `[…]`; with all discrete actions ≥ 0.

    Raises:
        ValueError: the shapes do not fit.
    """
    same_shape(scores[..., 0], q_values)
    return temperature * torch.logsumexp(scores / temperature, -1) - q_values


def regularized_policy_loss(q_values: Tensor, distances: Tensor, q_coef: float) -> Tensor:
    """Mean distance to the recorded actions − λ · mean Q(s, π(s)), with λ = q_coef / mean |Q|, a constant.

    Fujimoto and Gu 2021 (TD3+BC), arXiv:2106.06860, eqs. 3 and 5: λ makes the terms comparable whatever the rewards'
    scale.

    Args:
        q_values: Q(s, π(s)), `[N]`, with a gradient through the actions.
        distances: the distances of π(s) from the recorded action, `[N]`, ≥ 0.
        q_coef: α ≥ 0; 0 is behavior cloning.

    Raises:
        ValueError: the shapes differ.
    """
    same_shape(q_values, distances)
    return distances.mean() - q_coef * q_values.mean() / q_values.detach().abs().mean()
