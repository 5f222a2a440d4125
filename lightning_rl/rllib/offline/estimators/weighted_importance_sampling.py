"""The value of a policy by weighted importance sampling."""

from __future__ import annotations

from lightning_rl.rllib.offline.off_policy_estimator import OffPolicyEstimator

__all__ = ["WeightedImportanceSampling"]


class WeightedImportanceSampling(OffPolicyEstimator):
    """Importance sampling whose ratios at each step are divided by their mean over episodes; RLlib's "wis"."""

    name = "wis"
    weighted = True
