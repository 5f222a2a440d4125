"""What every actor-critic adds to a fragment before it learns from it."""

from __future__ import annotations

from lightning_rl.losses.returns import gae
from lightning_rl.policies.policy import Policy
from lightning_rl.sample_batch import SampleBatch, flattened

__all__ = ["advantage_rows"]


def advantage_rows(policy: Policy, fragment: SampleBatch, lam: float) -> SampleBatch:
    """The rows `[N, …]` of a fragment with `vf_preds`, `advantages` by GAE and `value_targets`.

    One forward over the whole fragment gives the values: acting never computes them.

    Args:
        policy: whose values, discount and reward filter count.
        fragment: `obs [T+1, B, *]`, everything else `[T, B, …]`.
        lam: λ in [0, 1].
    """
    values = policy.values(fragment.obs)
    ends = {"terminated": fragment.terminated, "truncated": fragment.truncated, "valid": fragment.valid}
    fragment = fragment.copy()
    fragment["vf_preds"] = values[:-1]
    fragment["advantages"] = gae(policy.normalised_rewards(fragment), values, **ends, gamma=policy.gamma, lam=lam)
    fragment["value_targets"] = fragment.advantages + fragment.vf_preds
    return flattened(fragment)
