"""The KL divergence between the policy before an iteration and after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.sample_batch import SampleBatch

__all__ = ["mean_kl"]


@torch.no_grad()
def mean_kl(policy: Any, rows: SampleBatch, before: Callable[[SampleBatch], ActionDistribution]) -> float:
    """KL(π_before‖π), the mean over all rows in nats, of the policy that acts next: one forward in eval mode."""
    total = torch.zeros((), device=policy.device)
    with policy.in_eval_mode():
        for part in rows.minibatches(policy.learner.minibatch_count(rows), torch.Generator().manual_seed(0)):
            total += before(part).kl(policy.distribution_of(part)).sum()
    return float(total) / rows.count
