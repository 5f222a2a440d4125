"""RLlib 1.x's estimator by weighted importance sampling."""

from __future__ import annotations

from typing import Any

from lightning_rl.rllib.offline.estimators.weighted_importance_sampling import WeightedImportanceSampling
from lightning_rl.rllib.offline.off_policy_estimator import OffPolicyEstimate, classic_estimate

__all__ = ["WeightedImportanceSamplingEstimator"]


class WeightedImportanceSamplingEstimator:
    """`WeightedImportanceSampling` with the names of RLlib 1.x, over the episodes of one batch.

    Args:
        policy, gamma: as `WeightedImportanceSampling`.
    """

    def __init__(self, policy: Any, gamma: float) -> None:
        self.policy, self.gamma = policy, gamma

    def estimate(self, batch: Any) -> OffPolicyEstimate:
        """Estimate from whole episodes."""
        return classic_estimate(WeightedImportanceSampling, self.policy, self.gamma, batch)
