"""Action distributions: base.py is the contract, the rest one file per kind of action."""

from lightning_rl.models.distributions.base import ActionDistribution
from lightning_rl.models.distributions.continuous import Deterministic, DiagGaussian
from lightning_rl.models.distributions.discrete import Bernoulli, Categorical, MultiCategorical
from lightning_rl.models.distributions.nested import (
    MultiActionDistribution,
    distribution_class,
    log_std_columns,
    parts_of,
)

__all__ = [
    "ActionDistribution",
    "Bernoulli",
    "Categorical",
    "Deterministic",
    "DiagGaussian",
    "MultiActionDistribution",
    "MultiCategorical",
    "distribution_class",
    "log_std_columns",
    "parts_of",
]
