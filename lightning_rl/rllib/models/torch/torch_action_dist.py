"""RLlib's action distributions in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from gymnasium import Space
from torch import Tensor

from lightning_rl.models import distributions
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


class TorchBeta(distributions.Beta):
    """Independent beta distributions with α = 1 + softplus(x); greedy actions are the means.

    Args:
        inputs: A numbers x of α and then A of β.
        model, form: see `lightning_rl.models.distributions.Beta`.
    """

    def __init__(self, inputs: Tensor, model: Any = None, **form: Any) -> None:
        super().__init__(inputs, model, **form)
        self.alpha, self.beta = (1.0 + F.softplus(inputs)).chunk(2, dim=1)
        self.mode = self.alpha / (self.alpha + self.beta)


class TorchDirichlet(distributions.Dirichlet):
    """Shares of a whole with α = exp(x); greedy actions are softmax(α).

    Args:
        inputs: A numbers x.
        model, form: see `lightning_rl.models.distributions.Dirichlet`.
    """

    def __init__(self, inputs: Tensor, model: Any = None, **form: Any) -> None:
        super().__init__(inputs, model, **form)
        self.alpha = inputs.exp() + 1e-7
        self.mode = self.alpha.softmax(1)

    @staticmethod
    def required_model_output_shape(action_space: Space[Any], model_config: Any = None) -> int:
        """One number per entry."""
        return math.prod(action_space.shape or ())


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
