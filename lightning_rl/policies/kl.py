"""The adaptive KL penalty of PPO and APPO: the KL that an iteration caused, and the penalty's next coefficient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lightning_rl.distributed import mean_over_ranks
from lightning_rl.fast_torch import in_eval_mode
from lightning_rl.losses.policy_gradient import penalty_factor
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.sample_batch import SampleBatch

__all__ = ["acting_distribution", "adapt_kl_coef", "mean_kl"]


def acting_distribution(policy: Any, rows: SampleBatch) -> ActionDistribution:
    """The distribution that the rows' actions were sampled from, of "action_dist_inputs" and the rows' mask."""
    return policy.distribution(rows.action_dist_inputs, policy.mask_of(rows))


@torch.no_grad()
def mean_kl(policy: Any, rows: SampleBatch, before: Callable[[SampleBatch], ActionDistribution]) -> float:
    """KL(π_before‖π), the mean over all rows in nats, of the policy that acts next: one forward in eval mode."""
    total = torch.zeros((), device=policy.device)
    with in_eval_mode(policy):
        for part in rows.minibatches(policy.learner.minibatch_count(rows), torch.Generator().manual_seed(0)):
            total += before(part).kl(policy.distribution_of(part)).sum()
    return float(total) / rows.count


def adapt_kl_coef(policy: Any, kl: float) -> None:
    """Multiply `policy.kl_coef` by `penalty_factor` of an iteration's KL, the mean over all ranks: 1.5, ½ or 1.

    Args:
        policy: has the buffer `kl_coef` and the number `kl_target`, nats.
        kl: mean KL of this rank's rows after the iteration, nats.
    """
    policy.kl_coef *= penalty_factor(mean_over_ranks(torch.tensor(kl, device=policy.device)), policy.kl_target)
