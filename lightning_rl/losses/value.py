"""Targets of value functions, and losses for them."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_rl.losses.policy_gradient import same_shape

__all__ = [
    "c51_clip_fraction",
    "c51_projection",
    "clipped_square_error",
    "double_q_values",
    "dueling_q_values",
    "expectile",
    "explained_variance",
    "huber",
    "mean_huber",
    "quantile_huber",
    "td_targets",
    "value_change_clipped_error",
    "value_rescale",
    "value_rescale_inverse",
    "weighted_mean",
]

ELEMENTWISE, MEAN = 0, 1  # reduction codes of torch's kernels


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
    """Mean of min((V − target)², limit): rows with larger errors have no gradient. RLlib's `vf_clip_param`.

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
    """Mean of max((V − target)², (V_old + clip(V − V_old, ±clip) − target)²), the counterpart of the clipped ratio.

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


def huber(errors: Tensor, delta: float | None = 1.0) -> Tensor:
    """½e² up to |e| = delta, then delta·(|e| − ½delta); elementwise. Huber 1964, Ann. Math. Statist. 35.

    Args:
        errors: the errors of any shape.
        delta: `None`: ½e² everywhere.
    """
    if delta is None:
        return 0.5 * errors.square()
    # Not F.huber_loss: for a batch of 64, its Python checks cost more than its kernel.
    return torch.ops.aten.huber_loss.default(errors, torch.zeros_like(errors), ELEMENTWISE, delta)


def mean_huber(errors: Tensor, delta: float | None = 1.0, weights: Tensor | None = None) -> Tensor:
    """The (weighted) mean of `huber`, a scalar; without weights in the same operation."""
    if delta is None or weights is not None:
        return weighted_mean(huber(errors, delta), weights)
    return torch.ops.aten.huber_loss.default(errors, torch.zeros_like(errors), MEAN, delta)


def weighted_mean(errors: Tensor, weights: Tensor | None = None) -> Tensor:
    """The mean of weight · error over the rows `[N]`; `weights=None`: of the errors."""
    return (errors if weights is None else weights * errors).mean()


def expectile(errors: Tensor, tau: float) -> Tensor:
    """|τ − 1{e < 0}| e², elementwise: its minimizer is the τ-expectile of the target.

    Kostrikov et al. 2021 (IQL), arXiv:2110.06169, eq. 5.

    Args:
        errors: target − V(s); with τ > ½, targets above V weigh more.
        tau: τ in (0, 1); ½ is half the square error.
    """
    return torch.where(errors < 0, 1.0 - tau, tau) * errors.square()


def td_targets(rewards: Tensor, next_values: Tensor, terminated: Tensor, discount: float | Tensor) -> Tensor:
    """One-step target r + γ V(s'), without V(s') where `terminated`; carries no gradient.

    Sutton and Barto 2018, eq. 6.2.

    Args:
        rewards: `[N]`; for n steps, their discounted sum.
        next_values: value of the state that the rewards lead to, `[N]`; or M > 1 quantiles of it, `[N, M]`.
        terminated: bool `[N]`; a truncated row bootstraps.
        discount: γ, or γⁿ per row `[N]`.

    Returns:
        As `next_values`.

    Raises:
        ValueError: the shapes differ.
    """
    if next_values.dim() == 2 and next_values.shape[1] > 1:  # a column [N, 1] is a mistake of the caller
        rewards, terminated = (column.unsqueeze(1).expand_as(next_values) for column in (rewards, terminated))
        discount = discount.unsqueeze(1) if isinstance(discount, Tensor) else discount
    same_shape(rewards, next_values, terminated)
    # Not a product with 0: V of a state without legal actions may be −∞.
    return (rewards + discount * next_values.masked_fill(terminated, 0.0)).detach()


def double_q_values(q_online: Tensor, q_target: Tensor) -> Tensor:
    """Q_target(s, argmaxₐ Q_online(s, a)), `[N]`: one network chooses the action, the other evaluates it.

    Van Hasselt et al. 2016, arXiv:1509.06461, eq. 4.

    Args:
        q_online, q_target: `[N, A]`; illegal actions are −∞ in `q_online`.

    Raises:
        ValueError: the shapes differ.
    """
    same_shape(q_online, q_target)
    return q_target.gather(-1, q_online.argmax(-1, keepdim=True)).squeeze(-1)


def dueling_q_values(state_values: Tensor, advantages: Tensor) -> Tensor:
    """V(s) + A(s, a) − mean of A(s, ·) over the possible actions.

    Wang et al. 2016, arXiv:1511.06581, eq. 9.

    Args:
        state_values: V(s), `[N, Z]` (Z atoms of a distribution, or 1).
        advantages: `[N, A, Z]`; −∞ for impossible actions, also in the result.

    Returns:
        `[N, A, Z]`.

    Raises:
        ValueError: the shapes do not fit.
    """
    if advantages.dim() != 3 or state_values.shape != (advantages.shape[0], advantages.shape[2]):
        shapes = f"state_values {list(state_values.shape)} and advantages {list(advantages.shape)}"
        raise ValueError(f"{shapes} do not fit; expected [N, Z] and [N, A, Z]")
    possible = advantages > -torch.inf
    mean = advantages.where(possible, 0.0).sum(1) / possible.sum(1)  # [N, Z]
    return advantages + (state_values - mean).unsqueeze(1)


def c51_projection(
    next_probabilities: Tensor, rewards: Tensor, terminated: Tensor, discount: float | Tensor, atoms: Tensor
) -> Tensor:
    """The distribution of r + γ Z(s') projected onto the atoms: each mass is divided between its two neighbors.

    Bellemare et al. 2017, arXiv:1707.06887, eq. 7 and algorithm 1.

    Args:
        next_probabilities: p(Z(s') = atom), `[N, Z]`.
        rewards: `[N]`; for n steps, their discounted sum.
        terminated: bool `[N]`; all mass goes to the reward.
        discount: γ, or γⁿ per row `[N]`.
        atoms: rising and evenly spaced, `[Z]`, at least two; mass outside goes to the nearest end.

    Returns:
        `[N, Z]`; sums of rows are preserved.

    Raises:
        ValueError: the shapes do not fit.
    """
    same_shape(rewards, terminated)
    if next_probabilities.shape != (len(rewards), len(atoms)):
        shapes = f"{list(next_probabilities.shape)} with rewards {list(rewards.shape)} and atoms {list(atoms.shape)}"
        raise ValueError(f"next_probabilities is {shapes}; expected [N, Z] with [N] and [Z]")
    discounts = torch.as_tensor(discount, dtype=rewards.dtype, device=rewards.device) * ~terminated  # [N]
    shifted = (rewards[:, None] + discounts[:, None] * atoms).clamp(atoms[0], atoms[-1])  # [N, Z]
    distance = (shifted[:, :, None] - atoms).abs() / (atoms[1] - atoms[0])  # [N, from, to]
    return torch.bmm(next_probabilities[:, None], (1.0 - distance).clamp(min=0.0)).squeeze(1)


@torch.no_grad()
def c51_clip_fraction(
    next_probabilities: Tensor, rewards: Tensor, terminated: Tensor, discount: float | Tensor, atoms: Tensor
) -> Tensor:
    """Share of the mass of r + γ Z(s') that lies beyond the atoms by more than half the distance of two, `[N]`.

    `c51_projection` moves it to the ends, where returns can no longer be distinguished.

    Args:
        next_probabilities, rewards, terminated, discount, atoms: see `c51_projection`.
    """
    discounts = torch.as_tensor(discount, dtype=rewards.dtype, device=rewards.device) * ~terminated  # [N]
    shifted = rewards[:, None] + discounts[:, None] * atoms  # [N, Z]
    beyond = (shifted - shifted.clamp(atoms[0], atoms[-1])).abs() > 0.5 * (atoms[1] - atoms[0])
    return (next_probabilities * beyond).sum(-1)


def quantile_huber(quantiles: Tensor, taus: Tensor, targets: Tensor, kappa: float = 1.0) -> Tensor:
    """Sum over i of meanⱼ |τᵢ − 1{uᵢⱼ < 0}| Huber_κ(uᵢⱼ)/κ with uᵢⱼ = targetⱼ − quantileᵢ, per row.

    Dabney et al. 2018 (QR-DQN), arXiv:1710.10044, eq. 10, divided by κ as in IQN, arXiv:1806.06923, eq. 3.

    Args:
        quantiles: predicted values at `taus`, `[N, Q]`; carries the gradient.
        taus: fractions in (0, 1), `[Q]` or `[N, Q]`; QR-DQN's are the midpoints (2i + 1)/2Q.
        targets: samples or quantiles of the target's distribution, `[N, K]`; no gradient flows into them.
        kappa: κ > 0, where the square becomes linear.

    Returns:
        `[N]`, so that the caller can weigh rows.

    Raises:
        ValueError: the shapes do not fit.
    """
    fits = quantiles.dim() == 2 and targets.dim() == 2 and len(targets) == len(quantiles)
    if not fits or taus.shape not in (quantiles.shape, quantiles.shape[1:]):
        shapes = f"quantiles {list(quantiles.shape)}, taus {list(taus.shape)}, targets {list(targets.shape)}"
        raise ValueError(f"{shapes} do not fit; expected [N, Q], [Q] or [N, Q], and [N, K]")
    errors = targets.detach()[:, None, :] - quantiles[:, :, None]  # [N, Q, K]
    weights = (taus[..., None] - (errors < 0).to(taus.dtype)).abs()
    return (weights * huber(errors, kappa) / kappa).mean(-1).sum(-1)


def value_rescale(values: Tensor, epsilon: float = 1e-3) -> Tensor:
    """h(x) = sign(x)(√(|x| + 1) − 1) + εx, elementwise: large returns shrink, so that rewards need no clipping.

    Pohlen et al. 2018, arXiv:1805.11593, section 3.2; ε > 0 keeps the inverse Lipschitz.
    """
    # √(|x|+1) − 1 = |x| / (√(|x|+1) + 1), which avoids cancellation near 0 and has a gradient there.
    return values / ((values.abs() + 1.0).sqrt() + 1.0) + epsilon * values


def value_rescale_inverse(values: Tensor, epsilon: float = 1e-3) -> Tensor:
    """h⁻¹ of `value_rescale`, elementwise: sign(x)(((√(1 + 4ε(|x| + 1 + ε)) − 1) / 2ε)² − 1).

    Pohlen et al. 2018, arXiv:1805.11593, proposition A.2.
    """
    # With m = 2 / (√… + 1 + 2ε) the fraction is 1 + |x|m: the published form loses half of float32's digits.
    size = values.abs()
    slope = 2.0 / ((1.0 + 4.0 * epsilon * (size + 1.0 + epsilon)).sqrt() + 1.0 + 2.0 * epsilon)
    return values * slope * (2.0 + size * slope)
