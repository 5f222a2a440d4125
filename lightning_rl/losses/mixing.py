"""Mixing functions: one action value of a group from the action values of its members."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from lightning_rl.losses.policy_gradient import same_shape

__all__ = ["mean_over_present", "monotonic_mix", "sum_mix"]


def monotonic_mix(q_values: Tensor, first: Tensor, first_bias: Tensor, last: Tensor, last_bias: Tensor) -> Tensor:
    """Q_tot = |w|ᵀ ELU(|W|ᵀ q + b) + v: it never falls where a member's value rises.

    Rashid et al. 2018 (QMIX), arXiv:1803.11485, section 4.1: then the members' own best actions are together the best
    joint action.

    Args:
        q_values: q, the values of the members' actions, `[N, n]`; 0 for a member that takes no part.
        first: W, `[N, n, E]`, of any sign.
        first_bias: b, `[N, E]`.
        last: w, `[N, E]`, of any sign.
        last_bias: v, `[N]`.

    Returns:
        `[N]`.

    Raises:
        ValueError: the shapes do not fit.
    """
    rows, members = q_values.shape
    if first.shape != (rows, members, last.shape[-1]) or last_bias.shape != (rows,):
        shapes = f"q_values {list(q_values.shape)}, first {list(first.shape)}, last_bias {list(last_bias.shape)}"
        raise ValueError(f"{shapes} do not fit; expected [N, n], [N, n, E] and [N]")
    same_shape(first_bias, last)
    hidden = F.elu((q_values.unsqueeze(1) @ first.abs()).squeeze(1) + first_bias)  # [N, E]
    return (hidden * last.abs()).sum(1) + last_bias


def sum_mix(q_values: Tensor) -> Tensor:
    """Q_tot = Σᵢ qᵢ, `[…]`, of the members' values `[…, n]`. Sunehag et al. 2017 (VDN), arXiv:1706.05296, eq. 2."""
    return q_values.sum(-1)


def mean_over_present(values: Tensor, present: Tensor | None) -> Tensor:
    """The mean of each row's `values [N, n]` over the members that are present, `[N]`; 0 where none is.

    Args:
        values: a number for each member; those of absent members are ignored, NaN too.
        present: bool `[N, n]`; `None`: all.

    Raises:
        ValueError: the shapes differ.
    """
    if present is None:
        return values.mean(1)
    same_shape(values, present)
    return values.masked_fill(~present, 0.0).sum(1) / present.sum(1).clamp(min=1)
