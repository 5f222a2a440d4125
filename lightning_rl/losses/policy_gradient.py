"""Policy-gradient losses: log-probabilities weighted by advantages."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "approx_kl",
    "clip_fraction",
    "clipped_surrogate",
    "penalty_factor",
    "policy_gradient",
    "same_shape",
    "standardize",
]


def same_shape(*tensors: Tensor) -> None:
    """Raise an error for operands that would broadcast: `[N]` against `[N, 1]` silently becomes `[N, N]`.

    Raises:
        ValueError: the shapes differ.
    """
    for tensor in tensors[1:]:
        if tensor.shape != tensors[0].shape:
            raise ValueError(f"shapes differ: {[list(each.shape) for each in tensors]}; expected [N] for all")


def policy_gradient(logp: Tensor, advantages: Tensor) -> Tensor:
    """−mean(log π(a|s) · A): descending it raises the probability of actions with positive advantages.

    Williams 1992, Machine Learning 8; with a baseline, Sutton et al. 1999.

    Args:
        logp: log π(a|s), `[N]`; carries the gradient.
        advantages: A(s, a) or returns, `[N]`; no gradient flows into them.

    Returns:
        Scalar in units of `advantages`.

    Raises:
        ValueError: the shapes differ.
    """
    same_shape(logp, advantages)
    return -(logp * advantages.detach()).mean()


def clipped_surrogate(logp: Tensor, action_logp: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """Negated PPO objective, so that descending it improves the policy.

    Schulman et al. 2017, arXiv:1707.06347, eq. 7.

    Args:
        logp: log π(a|s) of the policy in training, `[N]`; carries the gradient.
        action_logp: log π_b(a|s) of the policy that acted, `[N]`.
        advantages: A(s, a), `[N]`, normalized by the caller if at all.
        clip: ε, half-width of the interval around ratio 1.

    Returns:
        Scalar, the mean over the batch, in units of `advantages`.

    Raises:
        ValueError: the shapes differ (`[N]` against `[N, 1]` would broadcast to `[N, N]`).
    """
    same_shape(logp, action_logp, advantages)
    ratio = (logp - action_logp).exp()
    # clip(ratio, 1 ± ε) · A is only taken where it is smaller; there it equals A + ε|A|, which needs half the graph.
    return -torch.min(ratio * advantages, advantages + clip * advantages.abs()).mean()


def approx_kl(logp: Tensor, action_logp: Tensor) -> Tensor:
    """KL(π_b‖π) estimated from the actions taken: mean((r − 1) − log r), r = π/π_b; never negative, 0 if π = π_b.

    Schulman 2020, "Approximating KL divergence" (estimator k3), joschu.net/blog/kl-approx.html.

    Args:
        logp, action_logp: log π(a|s) and log π_b(a|s), `[N]`.

    Raises:
        ValueError: the shapes differ.
    """
    same_shape(logp, action_logp)
    log_ratio = logp.detach() - action_logp
    return (log_ratio.expm1() - log_ratio).mean()


def clip_fraction(logp: Tensor, action_logp: Tensor, clip: float) -> Tensor:
    """Share of rows, in [0, 1], whose ratio has left [1 − clip, 1 + clip].

    Args:
        logp, action_logp: log π(a|s) and log π_b(a|s), `[N]`.
        clip: ε.

    Raises:
        ValueError: the shapes differ.
    """
    same_shape(logp, action_logp)
    return ((logp.detach() - action_logp).expm1().abs() > clip).float().mean()


def penalty_factor(kl: float, kl_target: float) -> float:
    """The factor for the coefficient of an adaptive KL penalty after an iteration: 1.5, ½ or 1.

    Schulman et al. 2017, arXiv:1707.06347, section 4, with RLlib's numbers: up above 2 × the target, down below ½ ×.

    Args:
        kl: mean KL of the iteration, nats.
        kl_target: desired KL, nats.
    """
    return 1.5 if kl > 2.0 * kl_target else 0.5 if kl < 0.5 * kl_target else 1.0


def standardize(advantages: Tensor, moments: tuple[Tensor, Tensor] | None = None, *, least: float = 1e-4) -> Tensor:
    """(A − mean) / deviation over the batch, `[N]`; equal advantages become 0.

    Args:
        advantages: `[N]`.
        moments: mean and deviation of a larger batch that contains these; `None`: computed from these.
        least: lower bound of the population's deviation, > 0; the default is that of RLlib's PPO.
    """
    if moments is None:
        deviation, mean = torch.std_mean(advantages, correction=0)
    else:
        mean, deviation = moments
    return (advantages - mean) / deviation.clamp(min=least)
