"""RLlib 1.x's estimator by importance sampling."""

from __future__ import annotations

from typing import Any

from lightning_rl.rllib.offline.estimators.importance_sampling import ImportanceSampling
from lightning_rl.rllib.offline.off_policy_estimator import OffPolicyEstimate, classic_estimate

__all__ = ["ImportanceSamplingEstimator"]


class ImportanceSamplingEstimator:
    """`ImportanceSampling` with the names of RLlib 1.x.

    Args:
        policy, gamma: as `ImportanceSampling`.
    """

    def __init__(self, policy: Any, gamma: float) -> None:
        self.policy, self.gamma = policy, gamma

    def estimate(self, batch: Any) -> OffPolicyEstimate:
        """Estimate from whole episodes."""
        return classic_estimate(ImportanceSampling, self.policy, self.gamma, batch)
