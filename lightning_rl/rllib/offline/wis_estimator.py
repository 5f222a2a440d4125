"""RLlib 1.x's estimator by weighted importance sampling."""

from __future__ import annotations

from lightning_rl.rllib.offline.estimators.weighted_importance_sampling import WeightedImportanceSampling
from lightning_rl.rllib.offline.off_policy_estimator import ClassicEstimator

__all__ = ["WeightedImportanceSamplingEstimator"]


class WeightedImportanceSamplingEstimator(ClassicEstimator):
    """`WeightedImportanceSampling` with the names of RLlib 1.x, whose means are over all episodes so far."""

    estimator = WeightedImportanceSampling
