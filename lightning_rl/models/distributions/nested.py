"""Actions of several parts, and which distribution a space gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor

from lightning_rl.models.distributions.base import ActionDistribution, DistFactory
from lightning_rl.models.distributions.continuous import DiagGaussian
from lightning_rl.models.distributions.discrete import Bernoulli, Categorical, MultiCategorical
from lightning_rl.spaces import choices_of, leaf_spaces, leaf_values, packed

__all__ = ["MultiActionDistribution", "Part", "distribution_class", "log_std_columns", "parts_of"]


@dataclass(frozen=True, slots=True)
class Part:
    """One leaf of a nested action: what makes its distribution, and how many inputs and mask columns it takes."""

    factory: DistFactory
    inputs: int
    mask: int
    maskable: bool


class MultiActionDistribution(ActionDistribution):
    """Independent distributions for the leaves of a Dict or Tuple; actions are nested as the space is.

    Args:
        inputs, model, mask: as `ActionDistribution`; a mask covers the discrete leaves, in order.
        space: the Dict or Tuple.
        parts: one for each leaf.
    """

    maskable = True

    def __init__(
        self, inputs: Tensor, model: Any = None, mask: Tensor | None = None, *, space: Space[Any], parts: Sequence[Part]
    ) -> None:
        super().__init__(inputs, model, mask)
        self.space = space
        pieces = inputs.split([part.inputs for part in parts], dim=1)
        masks = [None] * len(parts) if mask is None else mask.split([part.mask for part in parts], dim=1)
        self.children: list[ActionDistribution] = [
            part.factory(piece, model, allowed if part.maskable else None)
            for part, piece, allowed in zip(parts, pieces, masks, strict=True)
        ]

    @staticmethod
    def required_model_output_shape(action_space: Space[Any], model_config: Mapping[str, Any] | None = None) -> int:
        """The sum over the leaves."""
        return sum(part.inputs for part in parts_of(action_space))

    @classmethod
    def for_space(cls, action_space: Space[Any]) -> DistFactory:
        """With the leaves of that space."""
        return partial(cls, space=action_space, parts=parts_of(action_space))

    def sample(self, generator: torch.Generator | None = None) -> Any:
        """Actions nested as the space is, leaves `[N, …]`."""
        return packed(self.space, iter([child.sample(generator) for child in self.children]))

    def deterministic_sample(self) -> Any:
        """The likeliest actions, nested."""
        return packed(self.space, iter([child.deterministic_sample() for child in self.children]))

    def logp(self, actions: Any) -> Tensor:
        """Sum over the leaves, `[N]`; actions are dicts, tuples or nested batches."""
        leaves = leaf_values(self.space, actions)
        return _total([child.logp(leaf) for child, leaf in zip(self.children, leaves, strict=True)])

    def sampled_action_logp(self) -> Tensor:
        """Sum over the leaves, `[N]`."""
        return _total([child.sampled_action_logp() for child in self.children])

    def entropy(self) -> Tensor:
        """Sum over the leaves, `[N]`."""
        return _total([child.entropy() for child in self.children])

    def kl(self, other: MultiActionDistribution) -> Tensor:
        """Sum over the leaves, `[N]`."""
        return _total([child.kl(theirs) for child, theirs in zip(self.children, other.children, strict=True)])


def distribution_class(action_space: Space[Any]) -> type[ActionDistribution]:
    """The built-in distribution for a (supported) action space."""
    if isinstance(action_space, spaces.Dict | spaces.Tuple):
        return MultiActionDistribution
    if isinstance(action_space, spaces.Discrete):
        return Categorical
    if isinstance(action_space, spaces.MultiBinary):
        return Bernoulli
    return DiagGaussian if isinstance(action_space, spaces.Box) and action_space.dtype.kind == "f" else MultiCategorical


def log_std_columns(action_space: Space[Any]) -> list[int]:
    """Which of the model's outputs are logarithms of deviations: those that `free_log_std` makes parameters."""
    columns, start = [], 0
    for _, leaf in leaf_spaces(action_space):
        cls = distribution_class(leaf)
        width = cls.required_model_output_shape(leaf)
        columns += range(start + width // 2, start + width) if cls is DiagGaussian else ()
        start += width
    return columns


def parts_of(action_space: Space[Any]) -> tuple[Part, ...]:
    """One `Part` for each leaf of a space, in its order."""
    parts = []
    for _, leaf in leaf_spaces(action_space):
        cls = distribution_class(leaf)
        mask = int(choices_of(leaf).sum()) if cls.maskable else 0
        parts.append(Part(cls.for_space(leaf), cls.required_model_output_shape(leaf), mask, cls.maskable))
    return tuple(parts)


def _total(terms: list[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
