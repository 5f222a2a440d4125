"""Losses of actors and critics with Q-functions of actions: SAC, DDPG, TD3."""

from __future__ import annotations

from torch import Tensor

from lightning_rl.losses.policy_gradient import same_shape

__all__ = [
    "critic_error",
    "discrete_soft_policy_loss",
    "discrete_soft_values",
    "soft_policy_loss",
    "soft_values",
    "temperature_loss",
]


def soft_values(q_values: Tensor, logp: Tensor, alpha: Tensor | float) -> Tensor:
    """V(s) = Q(s, a) − α log π(a|s) for a sampled a, `[N]`.

    Haarnoja et al. 2018, arXiv:1812.05905, eq. 3.

    Args:
        q_values: Q(s, a), `[N]`; with several critics, the lowest.
        logp: log π(a|s), `[N]`.
        alpha: temperature, ≥ 0, in units of the reward per nat.

    Raises:
        ValueError: the shapes differ.
    """
    same_shape(q_values, logp)
    return q_values - alpha * logp


def soft_policy_loss(q_values: Tensor, logp: Tensor, alpha: Tensor | float) -> Tensor:
    """Mean of α log π(a|s) − Q(s, a): descending it raises the Q-values of actions and their entropy.

    Haarnoja et al. 2018, arXiv:1812.05905, eq. 7.

    Args:
        q_values: Q(s, a), `[N]`, with a gradient through a = f(s, noise).
        logp: log π(a|s), `[N]`, with its gradient.
        alpha: temperature; no gradient flows into it.

    Raises:
        ValueError: the shapes differ.
    """
    return -soft_values(q_values, logp, alpha.detach() if isinstance(alpha, Tensor) else alpha).mean()


def temperature_loss(log_alpha: Tensor, entropy: Tensor, target_entropy: float) -> Tensor:
    """Mean of log α · (H − H̄): descending it raises α where the entropy is below its target.

    Haarnoja et al. 2018, arXiv:1812.05905, eq. 18, with log α for α as in the authors' program.

    Args:
        log_alpha: scalar; carries the gradient.
        entropy: H(π(·|s)), or −log π(a|s) of sampled actions, `[N]`; no gradient flows into it.
        target_entropy: H̄, nats.
    """
    return log_alpha * (entropy.detach().mean() - target_entropy)


def discrete_soft_values(probs: Tensor, log_probs: Tensor, q_values: Tensor, alpha: Tensor | float) -> Tensor:
    """V(s) = Σₐ π(a|s) (Q(s, a) − α log π(a|s)), `[N]`.

    Christodoulou 2019, arXiv:1910.07207, eq. 10.

    Args:
        probs, log_probs: the probabilities and log-probabilities of all actions, `[N, A]`; an impossible action has
            probability 0 and any logarithm.
        q_values: the Q-values of all actions, `[N, A]`.
        alpha: temperature.

    Raises:
        ValueError: the shapes differ.
    """
    same_shape(probs, log_probs, q_values)
    inside = (q_values - alpha * log_probs).masked_fill(probs == 0, 0.0)  # −∞ · 0 would be NaN
    return (probs * inside).sum(-1)


def discrete_soft_policy_loss(probs: Tensor, log_probs: Tensor, q_values: Tensor, alpha: Tensor | float) -> Tensor:
    """Mean of Σₐ π(a|s) (α log π(a|s) − Q(s, a)); no gradient flows into Q or α.

    Christodoulou 2019, arXiv:1910.07207, eq. 12.

    Args:
        probs, log_probs, q_values, alpha: see `discrete_soft_values`.

    Raises:
        ValueError: the shapes differ.
    """
    weight = alpha.detach() if isinstance(alpha, Tensor) else alpha
    return -discrete_soft_values(probs, log_probs, q_values.detach(), weight).mean()


def critic_error(q_values: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Σ over the critics of the mean of ½ w (Q − target)².

    Fujimoto et al. 2018, arXiv:1802.09477, algorithm 1; Haarnoja et al. 2018, arXiv:1812.05905, eq. 5.

    Args:
        q_values: the Q-values of K critics, `[K, N]`; carries the gradient.
        targets: `[N]`, the same for all; or `[K, N]`.
        weights: importance weights of the rows, `[N]`; `None`: 1.

    Raises:
        ValueError: the shapes do not fit.
    """
    if q_values.dim() != 2 or targets.shape not in (q_values.shape[1:], q_values.shape):
        shapes = f"q_values {list(q_values.shape)} and targets {list(targets.shape)}"
        raise ValueError(f"{shapes} do not fit; expected [K, N] and [N] or [K, N]")
    errors = (q_values - targets).square()
    return (errors if weights is None else weights * errors).sum() * (0.5 / targets.shape[-1])
