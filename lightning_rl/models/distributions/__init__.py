"""Action distributions: base.py is the contract, the rest one file per kind of action."""

from lightning_rl.models.distributions.autoregressive import AutoregressiveDistribution
from lightning_rl.models.distributions.base import ActionDistribution
from lightning_rl.models.distributions.beta import Beta
from lightning_rl.models.distributions.chain import AutoregressiveHeads
from lightning_rl.models.distributions.continuous import Deterministic, DiagGaussian
from lightning_rl.models.distributions.discrete import Bernoulli, Categorical, GumbelSoftmax, MultiCategorical
from lightning_rl.models.distributions.nested import (
    MultiActionDistribution,
    action_dist,
    distribution_class,
    log_std_columns,
    parts_of,
)
from lightning_rl.models.distributions.simplex import Dirichlet
from lightning_rl.models.distributions.squashed import SquashedDeterministic, SquashedGaussian

__all__ = [
    "ActionDistribution",
    "AutoregressiveDistribution",
    "AutoregressiveHeads",
    "Bernoulli",
    "Beta",
    "Categorical",
    "Deterministic",
    "DiagGaussian",
    "Dirichlet",
    "GumbelSoftmax",
    "MultiActionDistribution",
    "MultiCategorical",
    "SquashedDeterministic",
    "SquashedGaussian",
    "action_dist",
    "distribution_class",
    "log_std_columns",
    "parts_of",
]
