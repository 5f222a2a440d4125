"""The mathematics as pure functions of tensors: one function, one equation, its paper, its golden test. Imports torch only."""

from __future__ import annotations

from lightning_rl.losses.policy_gradient import approx_kl, clip_fraction, clipped_surrogate, policy_gradient, standardised
from lightning_rl.losses.returns import discounted_returns, gae, lambda_returns, n_step_returns, vtrace
from lightning_rl.losses.value import clipped_square_error, explained_variance, huber, td_targets, value_change_clipped_error

__all__ = [
    "approx_kl",
    "clip_fraction",
    "clipped_square_error",
    "clipped_surrogate",
    "discounted_returns",
    "explained_variance",
    "gae",
    "huber",
    "lambda_returns",
    "n_step_returns",
    "policy_gradient",
    "standardised",
    "td_targets",
    "value_change_clipped_error",
    "vtrace",
]
