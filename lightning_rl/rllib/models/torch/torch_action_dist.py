"""RLlib's action distributions in PyTorch."""

from lightning_rl.models.distributions import (
    Beta as TorchBeta,
)
from lightning_rl.models.distributions import (
    Categorical as TorchCategorical,
)
from lightning_rl.models.distributions import (
    Deterministic as TorchDeterministic,
)
from lightning_rl.models.distributions import (
    DiagGaussian as TorchDiagGaussian,
)
from lightning_rl.models.distributions import (
    Dirichlet as TorchDirichlet,
)
from lightning_rl.models.distributions import (
    MultiCategorical as TorchMultiCategorical,
)
from lightning_rl.models.distributions import (
    SquashedGaussian as TorchSquashedGaussian,
)
from lightning_rl.rllib.models.action_dist import ActionDistribution as TorchDistributionWrapper

__all__ = [
    "TorchBeta",
    "TorchCategorical",
    "TorchDeterministic",
    "TorchDiagGaussian",
    "TorchDirichlet",
    "TorchDistributionWrapper",
    "TorchMultiCategorical",
    "TorchSquashedGaussian",
]
