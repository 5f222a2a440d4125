"""Returns and advantages of a fragment: `values [T+1, B]`, everything else `[T, B]`.

NEXT_STEP rows: after an episode's end (row t) comes a reset row (`valid=False`), and `values[t+1]` is the value of
the final observation. A truncated step therefore bootstraps from `values[t+1]`, a terminated one does not (also where
both flags are set), and no sum runs across either end. Invalid rows get 0 and contribute nothing to other rows; where
padding begins, the row before it bootstraps from its next value.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["discounted_returns", "gae", "lambda_returns", "n_step_returns", "vtrace"]


def discounted_returns(
    rewards: Tensor, *, terminated: Tensor, truncated: Tensor, valid: Tensor | None = None, gamma: float
) -> Tensor:
    """Gₜ = rₜ + γ Gₜ₊₁ until the end of the episode or fragment, without a bootstrap value.

    Sutton and Barto 2018, eq. 3.8.

    Args:
        rewards: `[T, B]`.
        terminated, truncated: bool `[T, B]`.
        valid: bool `[T, B]`; `None` means all rows are experience.
        gamma: discount in [0, 1].

    Returns:
        `[T, B]`, 0 on rows that are not valid.

    Raises:
        ValueError: the shapes differ.
    """
    going_on = _going_on(rewards, terminated, truncated, valid)
    return _backward_scan(_only(rewards, valid), gamma * going_on)


def gae(
    rewards: Tensor,
    values: Tensor,
    *,
    terminated: Tensor,
    truncated: Tensor,
    valid: Tensor | None = None,
    gamma: float,
    lam: float,
) -> Tensor:
    """Generalized advantage: Aₜ = δₜ + γλ Aₜ₊₁ with δₜ = rₜ + γ V(sₜ₊₁) − V(sₜ).

    No V(sₜ₊₁) after a termination, no Aₜ₊₁ after either end. Schulman et al. 2016, arXiv:1506.02438, eq. 16.

    Args:
        rewards, terminated, truncated, valid, gamma: see `discounted_returns`.
        values: V(s), `[T+1, B]`; the last row bootstraps episodes that the fragment's end cuts.
        lam: λ in [0, 1]: 0 is the one-step error, 1 the return minus V.

    Returns:
        `[T, B]`, 0 on rows that are not valid; value targets are this plus `values[:-1]`.

    Raises:
        ValueError: the shapes differ.
    """
    going_on = _going_on(rewards, terminated, truncated, valid)
    _check_values(values, rewards)
    delta = rewards + gamma * _only(values[1:], ~terminated) - values[:-1]
    return _backward_scan(_only(delta, valid), gamma * lam * going_on)


def lambda_returns(
    rewards: Tensor,
    values: Tensor,
    *,
    terminated: Tensor,
    truncated: Tensor,
    valid: Tensor | None = None,
    gamma: float,
    lam: float,
) -> Tensor:
    """Gₜ = rₜ + γ[(1−λ) V(sₜ₊₁) + λ Gₜ₊₁], `[T, B]`: the targets of a value function in TD(λ).

    Sutton and Barto 2018, eq. 12.18 (truncated form). Arguments, result and errors as `gae`.
    """
    advantages = gae(rewards, values, terminated=terminated, truncated=truncated, valid=valid, gamma=gamma, lam=lam)
    return _only(advantages + values[:-1], valid)


def n_step_returns(
    rewards: Tensor,
    values: Tensor,
    *,
    terminated: Tensor,
    truncated: Tensor,
    valid: Tensor | None = None,
    gamma: float,
    n: int,
) -> Tensor:
    """Gₜ = rₜ + γ rₜ₊₁ + … + γⁿ V(sₜ₊ₙ), shorter if the episode or fragment ends first, `[T, B]`.

    Sutton and Barto 2018, eq. 7.1. Arguments and errors as `gae`; `n` counts steps, ≥ 1.

    Raises:
        ValueError: the shapes differ, or `n` is below 1.
    """
    if n < 1:
        raise ValueError(f"n_step_returns got n={n}; expected at least 1")
    goes_on = _going_on(rewards, terminated, truncated, valid).bool()
    _check_values(values, rewards)
    if valid is not None:
        goes_on[:-1] &= valid[1:]
    bootstrap = _only(values[1:], ~terminated)
    returns = rewards + gamma * bootstrap
    for _ in range(min(n, len(rewards)) - 1):
        after = torch.cat([returns[1:], values[-1:]])
        returns = rewards + gamma * torch.where(goes_on, after, bootstrap)
    return _only(returns, valid)


def vtrace(
    log_rhos: Tensor,
    rewards: Tensor,
    values: Tensor,
    *,
    terminated: Tensor,
    truncated: Tensor,
    valid: Tensor | None = None,
    gamma: float,
    lam: float = 1.0,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
    clip_pg_rho: float | None = 1.0,
) -> tuple[Tensor, Tensor]:
    """V-trace: value targets and policy-gradient advantages for a fragment of another (older) policy.

    Espeholt et al. 2018, arXiv:1802.01561, eq. 1: vₜ − V(sₜ) = ρ̄ₜ δₜ + γ c̄ₜ (vₜ₊₁ − V(sₜ₊₁)).

    Args:
        log_rhos: log π(a|s) − log μ(a|s), `[T, B]`, of the learning against the acting policy.
        rewards, values, terminated, truncated, valid, gamma: see `gae`.
        lam: λ, multiplies c̄.
        clip_rho, clip_pg_rho: ρ̄ of the targets and of the advantages; infinity does not clip. `None`: advantages are
            not weighted with ρ; a caller that takes several gradient steps weights them in each.
        clip_c: c̄; above 1 the products of ratios may overflow in long fragments.

    Returns:
        Targets v `[T, B]` (V itself on rows that are not valid) and advantages ρ̄(r + γ vₜ₊₁ − V) `[T, B]` (0 there).

    Raises:
        ValueError: the shapes differ.
    """
    going_on = _going_on(rewards, terminated, truncated, valid)
    _check_values(values, rewards)
    if log_rhos.shape != rewards.shape:
        shapes = f"log_rhos {list(log_rhos.shape)} and rewards {list(rewards.shape)}"
        raise ValueError(f"{shapes} differ; expected [T, B] for both")
    rhos = _only(log_rhos, valid).clamp(max=80.0).exp()  # e⁸⁰ is finite in float32; no clip is that wide
    delta = rhos.clamp(max=clip_rho) * (rewards + gamma * _only(values[1:], ~terminated) - values[:-1])
    corrections = _backward_scan(_only(delta, valid), gamma * lam * rhos.clamp(max=clip_c) * going_on)
    targets = values[:-1] + corrections
    # v of the next row, or V if the next row is not a later step of this episode.
    following = torch.cat([targets[1:], values[-1:]])
    following = _only(torch.where(going_on.bool(), following, values[1:]), ~terminated)
    advantages = rewards + gamma * following - values[:-1]
    weighted = advantages if clip_pg_rho is None else rhos.clamp(max=clip_pg_rho) * advantages
    return targets, _only(weighted, valid)


def _going_on(rewards: Tensor, terminated: Tensor, truncated: Tensor, valid: Tensor | None) -> Tensor:
    """1 where sums continue into the next row: at a valid row that ends no episode."""
    for name, tensor in (("terminated", terminated), ("truncated", truncated), ("valid", valid)):
        if tensor is not None and (tensor.shape != rewards.shape or tensor.dtype != torch.bool):
            got, expected = f"{tensor.dtype} {list(tensor.shape)}", f"bool like rewards {list(rewards.shape)}"
            raise ValueError(f"{name} is {got}; expected {expected}")
    going_on = ~(terminated | truncated)
    return (going_on if valid is None else going_on & valid).to(rewards.dtype)


def _check_values(values: Tensor, rewards: Tensor) -> None:
    if values.shape != (rewards.shape[0] + 1, *rewards.shape[1:]):
        shapes = f"values {list(values.shape)} do not fit rewards {list(rewards.shape)}"
        raise ValueError(f"{shapes}; expected one row more, [T+1, B]")


def _only(column: Tensor, kept: Tensor | None) -> Tensor:
    """The column with 0 in rows that are not kept, even if they are NaN (unlike a product with 0)."""
    return column if kept is None else column.masked_fill(~kept, 0.0)


def _backward_scan(added: Tensor, factor: Tensor) -> Tensor:
    """xₜ = addedₜ + factorₜ · xₜ₊₁ along the first axis, by doubling: log₂ T vector operations instead of T."""
    step, length = 1, added.shape[0]
    while step < length:
        added = torch.cat([torch.addcmul(added[:-step], factor[:-step], added[step:]), added[-step:]])
        factor = torch.cat([factor[:-step] * factor[step:], factor[-step:]])  # the last ones are complete
        step *= 2
    return added
