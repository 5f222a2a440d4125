"""RLlib 1.x's estimator by importance sampling."""

from __future__ import annotations

from lightning_rl.rllib.offline.estimators.importance_sampling import ImportanceSampling
from lightning_rl.rllib.offline.off_policy_estimator import ClassicEstimator

__all__ = ["ImportanceSamplingEstimator"]


class ImportanceSamplingEstimator(ClassicEstimator):
    """`ImportanceSampling` with the names of RLlib 1.x."""

    estimator = ImportanceSampling
