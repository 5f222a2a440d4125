"""Advantages and value targets that actor-critics add to a fragment in `postprocess_trajectory`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lightning_rl.distributed import moments_over_ranks
from lightning_rl.losses.policy_gradient import standardize
from lightning_rl.losses.returns import gae, vtrace
from lightning_rl.policies.policy import Policy
from lightning_rl.sample_batch import STEP_INPUTS, SampleBatch

__all__ = [
    "advantage_rows",
    "all_values",
    "cheap_values",
    "correct_by_vtrace",
    "standardize_over_ranks",
    "vtrace_rows",
]

# In deviations of the return. Advantages that differ by less are mostly errors of the value network: of a task that is
# solved, or of one where nothing was gained yet.
NOISE = 0.02


def cheap_values(policy: Policy) -> dict[str, Tensor]:
    """The column `vf_preds [B]` to record with the actions, where the model computes values at almost no cost.

    Empty where values cost a forward pass of their own, or where the exploration disturbs the network.
    """
    model = policy.model
    return {"vf_preds": model.value_function()} if model.values_are_cheap and not policy.exploration.disturbs else {}


def all_values(policy: Policy, fragment: SampleBatch) -> Tensor:
    """V `[T+1, B]` of a fragment's observations; one forward computes values that were not recorded."""
    if "vf_preds" not in fragment:
        return policy.values(fragment.obs, fragment)
    # Rows of experience have recorded values; final observations and those after the last step have none.
    unknown = torch.cat([~fragment.valid, torch.ones_like(fragment.valid[:1])]).nonzero(as_tuple=True)
    inputs = fragment.select(*(name for name in STEP_INPUTS if name in fragment))
    rows = inputs.map(lambda column: column[unknown].unsqueeze(0))
    values = torch.cat([fragment.vf_preds, torch.zeros_like(fragment.vf_preds[:1])])
    values[unknown] = policy.values(rows.obs, rows)[0]
    return values


def advantage_rows(policy: Policy, fragment: SampleBatch, lam: float) -> SampleBatch:
    """The rows `[N, …]` of a fragment with `vf_preds`, `advantages` by GAE and `value_targets`.

    Args:
        policy: gives the values and the discount.
        fragment: `obs [T+1, B, *]`, everything else `[T, B, …]`.
        lam: λ in [0, 1].
    """
    values = all_values(policy, fragment)
    ends = {"terminated": fragment.terminated, "truncated": fragment.truncated, "valid": fragment.valid}
    fragment = fragment.copy()
    fragment["vf_preds"] = values[:-1]
    fragment["advantages"] = gae(fragment.rewards, values, **ends, gamma=policy.gamma, lam=lam)
    fragment["value_targets"] = fragment.advantages + fragment.vf_preds
    return policy.flatten_fragment(fragment)


LogpAndValues = Callable[[SampleBatch], tuple[Tensor, Tensor]]  # rows → log π(a|s) and V(s), `[N]` each


def vtrace_rows(policy: Policy, fragment: SampleBatch, logp_and_values: LogpAndValues, **clips: float) -> SampleBatch:
    """The rows `[N, …]` of a fragment that an older policy collected, with V-trace's targets and advantages.

    Their column `place [N]` is the index of each row in the flattened fragment.

    Args:
        policy: gives the discount, and the values of observations that are not experience.
        fragment: `obs [T+1, B, *]`, everything else `[T, B, …]`, with `action_logp` of the policy μ that acted.
        logp_and_values: gives log π(a|s) and V(s) of rows for the policy π that V-trace corrects for.
        clips: `clip_rho`, `clip_c` and `lam` of `vtrace`.
    """
    placed = fragment.copy()
    placed["place"] = torch.arange(fragment.valid.numel(), device=fragment.valid.device).view(fragment.valid.shape)
    rows = policy.flatten_fragment(placed)
    correct_by_vtrace(policy, rows, fragment, logp_and_values, **clips)
    return rows


def correct_by_vtrace(
    policy: Policy, rows: SampleBatch, fragment: SampleBatch, logp_and_values: LogpAndValues, **clips: float
) -> None:
    """Set the rows' `value_targets` by V-trace, and their `advantages` r + γ v' − V.

    `loss` weights the advantages with min(ρ̄, π/μ), because π changes with each gradient step.

    Args:
        policy, fragment, logp_and_values, clips: see `vtrace_rows`.
        rows: rows of `vtrace_rows`, changed in place.
    """
    logp, values = logp_and_values(rows)

    def spread(column: Tensor) -> Tensor:
        """A column `[N]` as `[T, B]`; 0 in rows that are not experience."""
        return column.new_zeros(fragment.valid.numel()).index_copy_(0, rows["place"], column).view(fragment.valid.shape)

    known = fragment.copy()
    known["vf_preds"] = spread(values)
    targets, advantages = vtrace(
        spread(logp - rows.action_logp),
        spread(rows.rewards),
        all_values(policy, known),
        terminated=fragment.terminated,
        truncated=fragment.truncated,
        valid=fragment.valid,
        gamma=policy.gamma,
        clip_pg_rho=None,
        **clips,
    )
    rows["value_targets"], rows["advantages"] = targets.flatten()[rows["place"]], advantages.flatten()[rows["place"]]


def standardize_over_ranks(policy: Policy, advantages: Tensor) -> Tensor:
    """`standardize` over the rows `[N]` of all ranks, so that ranks with parts of a batch give what one rank would.

    Outside a Trainer only these rows count, because other ranks may not call this at the same time. If rewards are in
    deviations of the return (`reward_filter="return_std"`), a smaller deviation than `NOISE` counts as that.
    """
    moments = moments_over_ranks(advantages) if policy.in_trainer else None
    return standardize(advantages, moments, least=NOISE if policy.reward_filter.name == "return_std" else 1e-4)
