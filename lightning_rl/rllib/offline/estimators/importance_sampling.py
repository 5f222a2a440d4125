"""The value of a policy by importance sampling."""

from __future__ import annotations

from lightning_rl.rllib.offline.off_policy_estimator import OffPolicyEstimator

__all__ = ["ImportanceSampling"]


class ImportanceSampling(OffPolicyEstimator):
    """Per-decision importance sampling: Σ γᵗ rₜ Π π(a|s) / μ(a|s), the mean over episodes; RLlib's "is"."""

    name = "is"
    weighted = False
