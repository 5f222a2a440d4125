"""RLlib's estimators of a policy's value from recorded episodes."""

from lightning_rl.rllib.offline.estimators.importance_sampling import ImportanceSampling
from lightning_rl.rllib.offline.estimators.weighted_importance_sampling import WeightedImportanceSampling
from lightning_rl.rllib.offline.off_policy_estimator import OffPolicyEstimator

__all__ = ["ImportanceSampling", "OffPolicyEstimator", "WeightedImportanceSampling"]
