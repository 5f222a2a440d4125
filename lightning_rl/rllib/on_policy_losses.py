"""RLlib's losses of PPO, A3C and PG as functions, for a `loss_fn` that adds to them or changes the model's values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from lightning_rl.losses.policy_gradient import clipped_surrogate, policy_gradient, standardize
from lightning_rl.losses.value import clipped_square_error
from lightning_rl.policies.kl import acting_distribution
from lightning_rl.rllib.sample_batch import SampleBatch
from lightning_rl.schedules import schedule_value

__all__ = ["actor_critic_loss", "kl_and_loss_stats", "pg_torch_loss", "ppo_surrogate_loss", "vf_preds_fetches"]


def ppo_surrogate_loss(policy: Any, model: Any, dist_class: Any, train_batch: Any) -> Tensor:
    """PPO's loss, a scalar, of standardized advantages; with the KL penalty of a policy derived from PPO.

    Schulman et al. 2017, arXiv:1707.06347, eq. 7 to 9.

    Args:
        policy: has "clip_param", "vf_clip_param", "vf_loss_coeff" and "entropy_coeff" in its config; its
            `base_metrics` get the parts of the loss.
        model, dist_class: arguments of a `loss_fn`; `model.value_function` may be another one than the model's.
        train_batch: rows with "advantages", "value_targets" and "action_logp".
    """
    outputs, _ = model(train_batch)
    dist, config = dist_class(outputs, model), policy.config
    logp = dist.logp(train_batch["actions"])
    clip = schedule_value(config["clip_param"], policy.env_steps)
    policy_loss = clipped_surrogate(logp, train_batch["action_logp"], standardize(train_batch["advantages"]), clip)
    limit = config.get("vf_clip_param")
    targets = train_batch["value_targets"]
    value_loss = clipped_square_error(model.value_function(), targets, math.inf if limit is None else limit)
    loss = _with_values_and_entropy(policy, policy_loss, value_loss, dist.entropy().mean())
    if getattr(policy, "has_kl_penalty", False):
        kl = acting_distribution(policy, SampleBatch.of(train_batch)).kl(dist).mean()
        policy.base_metrics["kl"] = kl
        loss = loss + policy.kl_coef * kl
    return loss


def actor_critic_loss(policy: Any, model: Any, dist_class: Any, train_batch: Any) -> Tensor:
    """A3C's loss, a scalar: means over rows, where RLlib has sums.

    Mnih et al. 2016, arXiv:1602.01783.

    Args:
        policy: has "vf_loss_coeff" and "entropy_coeff" in its config; its `base_metrics` get the parts of the loss.
        model, dist_class: see `ppo_surrogate_loss`.
        train_batch: rows with "advantages" and "value_targets".
    """
    outputs, _ = model(train_batch)
    dist = dist_class(outputs, model)
    policy_loss = policy_gradient(dist.logp(train_batch["actions"]), train_batch["advantages"])
    value_loss = F.mse_loss(model.value_function(), train_batch["value_targets"])
    return _with_values_and_entropy(policy, policy_loss, value_loss, dist.entropy().mean())


def pg_torch_loss(policy: Any, model: Any, dist_class: Any, train_batch: Any) -> Tensor:
    """−mean log π(a|s) A(s, a), a scalar; the arguments are those of a `loss_fn`."""
    outputs, _ = model(train_batch)
    policy_loss = policy_gradient(dist_class(outputs, model).logp(train_batch["actions"]), train_batch["advantages"])
    policy.base_metrics = {"policy_loss": policy_loss}
    return policy_loss


def kl_and_loss_stats(policy: Any, train_batch: Any) -> dict[str, Tensor]:
    """The parts of the last loss, for a `stats_fn`, with RLlib's name of the value loss."""
    metrics: Mapping[str, Tensor] = policy.base_metrics
    return {**metrics, **({"vf_loss": metrics["value_loss"]} if "value_loss" in metrics else {})}


def vf_preds_fetches(
    policy: Any, input_dict: Any, state_batches: Any, model: Any, action_dist: Any
) -> dict[str, Tensor]:
    """The values of the model's last rows as "vf_preds", for an `extra_action_out_fn`."""
    return {SampleBatch.VF_PREDS: model.value_function()}


def _with_values_and_entropy(policy: Any, policy_loss: Tensor, value_loss: Tensor, entropy: Tensor) -> Tensor:
    """The sum of the three with the weights of the policy's config; its `base_metrics` become these parts."""
    policy.base_metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
    entropy_coef = schedule_value(policy.config["entropy_coeff"], policy.env_steps)
    return policy_loss + policy.config["vf_loss_coeff"] * value_loss - entropy_coef * entropy
