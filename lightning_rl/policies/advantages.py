"""What every actor-critic adds to a fragment before it learns from it."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_rl.collective import moments_over_ranks
from lightning_rl.losses.policy_gradient import standardised
from lightning_rl.losses.returns import gae
from lightning_rl.policies.policy import Policy
from lightning_rl.sample_batch import STEP_INPUTS, SampleBatch

__all__ = ["advantage_rows", "all_values", "cheap_values", "standardised_over_ranks"]


def cheap_values(policy: Policy) -> dict[str, Tensor]:
    """`vf_preds` of the rows that just acted, to be recorded with them, where the model has them as good as ready."""
    model = policy.model
    return {"vf_preds": model.value_function()} if model.values_are_cheap and not policy.exploration.disturbs else {}


def all_values(policy: Policy, fragment: SampleBatch) -> Tensor:
    """V `[T+1, B]` of a fragment's observations: one forward over those whose value acting did not record."""
    if "vf_preds" not in fragment:
        return policy.values(fragment.obs, fragment)
    # Experience has its values; final observations and the last ones have not.
    unknown = torch.cat([~fragment.valid, torch.ones_like(fragment.valid[:1])]).nonzero(as_tuple=True)
    inputs = fragment.select(*(name for name in STEP_INPUTS if name in fragment))
    rows = inputs.map(lambda column: column[unknown].unsqueeze(0))
    values = torch.cat([fragment.vf_preds, torch.zeros_like(fragment.vf_preds[:1])])
    values[unknown] = policy.values(rows.obs, rows)[0]
    return values


def advantage_rows(policy: Policy, fragment: SampleBatch, lam: float) -> SampleBatch:
    """The rows `[N, …]` of a fragment with `vf_preds`, `advantages` by GAE and `value_targets`.

    Args:
        policy: whose values, discount and reward filter count.
        fragment: `obs [T+1, B, *]`, everything else `[T, B, …]`.
        lam: λ in [0, 1].
    """
    values = all_values(policy, fragment)
    ends = {"terminated": fragment.terminated, "truncated": fragment.truncated, "valid": fragment.valid}
    fragment = fragment.copy()
    fragment["vf_preds"] = values[:-1]
    fragment["advantages"] = gae(policy.normalised_rewards(fragment), values, **ends, gamma=policy.gamma, lam=lam)
    fragment["value_targets"] = fragment.advantages + fragment.vf_preds
    return policy.flattened(fragment)


def standardised_over_ranks(policy: Policy, advantages: Tensor) -> Tensor:
    """`standardised` over the rows `[N]` of all ranks: two with half a batch each do what one does with the whole.

    Outside a Trainer, where nobody says that the others ask as well, over these rows alone.
    """
    return standardised(advantages, moments_over_ranks(advantages) if policy.in_trainer else None)
