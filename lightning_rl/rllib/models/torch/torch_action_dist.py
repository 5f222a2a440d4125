"""RLlib's action distributions in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lightning_rl.models import distributions
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


class TorchMultiCategorical(distributions.MultiCategorical):
    """Independent categoricals; see `lightning_rl.models.distributions.MultiCategorical`.

    Args:
        inputs, model: see there.
        input_lens: number of values of each entry.
        action_space: gives the shape of an action; `None`: an entry after the other.
        keywords: others' of the base.
    """

    def __init__(
        self,
        inputs: Tensor,
        model: Any = None,
        input_lens: Sequence[int] | None = None,
        action_space: Any = None,
        **keywords: Any,
    ) -> None:
        if input_lens is not None:
            keywords |= {"choices": input_lens, "shape": None if action_space is None else action_space.shape}
        super().__init__(inputs, model, **keywords)
