"""What a value function is fitted to, and how its error is measured."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lightning_rl.losses.policy_gradient import same_shape

__all__ = ["clipped_square_error", "explained_variance", "huber", "td_targets", "value_change_clipped_error"]


@torch.no_grad()
def explained_variance(predictions: Tensor, targets: Tensor) -> Tensor:
    """1 − Var(target − prediction) / Var(target): 1 is perfect, 0 no better than a constant, negative is worse.

    Args:
        predictions, targets: `[N]`.

    Returns:
        Scalar; 0 where the targets do not vary.

    Raises:
        ValueError: the shapes differ.
    """
    same_shape(predictions, targets)
    variance = targets.var(correction=0)
    if variance < 1e-12:
        return torch.zeros_like(variance)
    return 1.0 - (targets - predictions).var(correction=0) / variance


def clipped_square_error(values: Tensor, targets: Tensor, limit: float) -> Tensor:
    """mean(min((V − target)², limit)): rows further off than √limit teach nothing. RLlib's `vf_clip_param`.

    Args:
        values: V(s), `[N]`; carries the gradient.
        targets: `[N]`.
        limit: largest squared error of a row.

    Raises:
        ValueError: the shapes differ.
    """
    same_shape(values, targets)
    return (values - targets).square().clamp(max=limit).mean()


def value_change_clipped_error(values: Tensor, old_values: Tensor, targets: Tensor, clip: float) -> Tensor:
    """mean(max((V − target)², (V_old + clip(V − V_old, ±clip) − target)²)): the value's counterpart of the clipped ratio.

    Engstrom et al. 2020, arXiv:2005.12729, section 3 (from OpenAI's implementation of PPO).

    Args:
        values: V(s) now, `[N]`; carries the gradient.
        old_values: V(s) when the rollout was collected, `[N]`.
        targets: `[N]`.
        clip: largest change that is rewarded, in units of the return.

    Raises:
        ValueError: the shapes differ.
    """
    same_shape(values, old_values, targets)
    limited = old_values + (values - old_values).clamp(-clip, clip)
    return torch.max((values - targets).square(), (limited - targets).square()).mean()


def huber(errors: Tensor, delta: float = 1.0) -> Tensor:
    """½e² up to |e| = delta, then delta·(|e| − ½delta); elementwise. Huber 1964, Ann. Math. Statist. 35."""
    return F.huber_loss(errors, torch.zeros_like(errors), reduction="none", delta=delta)


def td_targets(rewards: Tensor, next_values: Tensor, terminated: Tensor, discount: float | Tensor) -> Tensor:
    """r + γ (1 − terminated) V(s'), no gradient. Sutton and Barto 2018, eq. 6.2.

    Args:
        rewards: `[N]`; for n steps, their discounted sum.
        next_values: value of the state that the rewards lead to, `[N]`.
        terminated: bool `[N]`; a truncated row bootstraps.
        discount: γ, or γⁿ per row `[N]`.

    Raises:
        ValueError: the shapes differ.
    """
    same_shape(rewards, next_values, terminated)
    return (rewards + discount * ~terminated * next_values).detach()
