"""RLlib's action distributions in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
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
from lightning_rl.models.distributions.nested import Part
from lightning_rl.rllib.models.action_dist import ActionDistribution as TorchDistributionWrapper
from lightning_rl.schema.signatures import call_with_accepted_args
from lightning_rl.spaces import leaf_spaces, leaf_values, pack_leaves

__all__ = [
    "TorchBeta",
    "TorchCategorical",
    "TorchDeterministic",
    "TorchDiagGaussian",
    "TorchDirichlet",
    "TorchDistributionWrapper",
    "TorchMultiActionDistribution",
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

    def multi_entropy(self) -> Tensor:
        """The entropy of each entry, `[N, A]`."""
        return distributions.Categorical.entropy(self)

    def multi_kl(self, other: distributions.MultiCategorical) -> Tensor:
        """The KL divergence of each entry, `[N, A]`."""
        return distributions.Categorical.kl(self, other)


class TorchMultiActionDistribution(distributions.MultiActionDistribution):
    """Independent distributions for the leaves of a Dict or Tuple; actions have the nesting of the space.

    Args:
        inputs: `[N, K]`, the inputs of the leaves' distributions side by side.
        model: the model that computed them.
        child_distributions: a class for each leaf, or a function, called with (inputs, model); a list, or nested like
            the space.
        input_lens: number of inputs of each leaf, likewise.
        action_space: the Dict or Tuple space.

    Attributes:
        flat_child_distributions: the distributions of the leaves.
    """

    def __init__(
        self,
        inputs: Tensor,
        model: Any = None,
        *,
        child_distributions: Any,
        input_lens: Any,
        action_space: Space[Any],
    ) -> None:
        given = (child_distributions, input_lens)
        classes, widths = (each if isinstance(each, list) else leaf_values(action_space, each) for each in given)
        parts = [
            Part(partial(_child, child=child), width, mask=0, maskable=False)
            for child, width in zip(classes, widths, strict=True)
        ]
        super().__init__(inputs, model, space=action_space, parts=parts)
        self.flat_child_distributions = self.children

    def sample(self, generator: torch.Generator | None = None) -> Any:
        """Actions with the nesting of the space, leaves `[N, …]`."""
        sampled = [call_with_accepted_args(child.sample, generator) for child in self.children]
        return pack_leaves(self.space, iter(sampled))

    def logp(self, actions: Any) -> Tensor:
        """Sum over the leaves, `[N]`, of nested actions, or of those that stand side by side in `[N, A]`."""
        if isinstance(actions, Tensor):
            leaves: list[Any] = [leaf for _, leaf in leaf_spaces(self.space)]
            pieces = actions.split([math.prod(leaf.shape or ()) for leaf in leaves], dim=1)
            shaped = [piece.reshape(-1, *(leaf.shape or ())) for piece, leaf in zip(pieces, leaves, strict=True)]
            kinds = [torch.get_default_dtype() if leaf.dtype.kind == "f" else torch.int64 for leaf in leaves]
            actions = pack_leaves(self.space, iter([each.to(kind) for each, kind in zip(shaped, kinds, strict=True)]))
        return super().logp(actions)


def _child(inputs: Tensor, model: Any, mask: None, *, child: Any) -> Any:
    return child(inputs, model)
