"""Loss functions and targets as pure functions of tensors: one equation each, with its paper and hand-computed tests.

Imports torch only, so that any program can use it.
"""

from __future__ import annotations

from lightning_rl.losses.actor_critic import (
    critic_error,
    discrete_soft_policy_loss,
    discrete_soft_values,
    soft_policy_loss,
    soft_values,
    temperature_loss,
)
from lightning_rl.losses.baseline import batch_baseline
from lightning_rl.losses.evolution import centered_ranks, evolution_weights, random_search_weights
from lightning_rl.losses.off_policy import (
    bootstrap_interval,
    doubly_robust,
    effective_sample_size,
    episode_ratios,
    importance_sampling,
    per_decision_importance_sampling,
)
from lightning_rl.losses.offline import advantage_weights, conservative_gap, regularized_policy_loss
from lightning_rl.losses.policy_gradient import (
    approx_kl,
    clip_fraction,
    clipped_surrogate,
    policy_gradient,
    standardize,
)
from lightning_rl.losses.returns import discounted_returns, gae, lambda_returns, n_step_returns, vtrace
from lightning_rl.losses.value import (
    c51_clip_fraction,
    c51_projection,
    clipped_square_error,
    double_q_values,
    dueling_q_values,
    expectile,
    explained_variance,
    huber,
    mean_huber,
    quantile_huber,
    td_targets,
    value_change_clipped_error,
    value_rescale,
    value_rescale_inverse,
    weighted_mean,
)

__all__ = [
    "advantage_weights",
    "approx_kl",
    "batch_baseline",
    "bootstrap_interval",
    "c51_clip_fraction",
    "c51_projection",
    "centered_ranks",
    "clip_fraction",
    "clipped_square_error",
    "clipped_surrogate",
    "conservative_gap",
    "critic_error",
    "discounted_returns",
    "discrete_soft_policy_loss",
    "discrete_soft_values",
    "double_q_values",
    "doubly_robust",
    "dueling_q_values",
    "effective_sample_size",
    "episode_ratios",
    "evolution_weights",
    "expectile",
    "explained_variance",
    "gae",
    "huber",
    "importance_sampling",
    "lambda_returns",
    "mean_huber",
    "n_step_returns",
    "per_decision_importance_sampling",
    "policy_gradient",
    "quantile_huber",
    "random_search_weights",
    "regularized_policy_loss",
    "soft_policy_loss",
    "soft_values",
    "standardize",
    "td_targets",
    "temperature_loss",
    "value_change_clipped_error",
    "value_rescale",
    "value_rescale_inverse",
    "vtrace",
    "weighted_mean",
]
