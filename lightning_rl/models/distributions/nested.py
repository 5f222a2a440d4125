"""Distributions over nested actions, and the choice of the distribution for a space."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor

from lightning_rl.models.distributions.base import ActionDistribution, DistFactory, split_mask
from lightning_rl.models.distributions.continuous import DiagGaussian
from lightning_rl.models.distributions.custom import adapt
from lightning_rl.models.distributions.discrete import Bernoulli, Categorical, MultiCategorical
from lightning_rl.spaces import choices_of, leaf_spaces, leaf_values, pack_leaves

__all__ = [
    "MultiActionDistribution",
    "Part",
    "action_dist",
    "distribution_class",
    "log_std_columns",
    "parts_of",
]


@dataclass(frozen=True, slots=True)
class Part:
    """One leaf of a nested action: a factory of its distribution, and its numbers of inputs and mask columns."""

    factory: DistFactory
    inputs: int
    mask: int
    maskable: bool


class MultiActionDistribution(ActionDistribution):
    """Independent distributions for the leaves of a Dict or Tuple; actions have the nesting of the space.

    Args:
        inputs, model, mask: see `ActionDistribution`; a mask covers the discrete leaves, in order.
        space: the Dict or Tuple space.
        parts: distributions, one per leaf.
    """

    maskable = True

    def __init__(
        self, inputs: Tensor, model: Any = None, mask: Tensor | None = None, *, space: Space[Any], parts: Sequence[Part]
    ) -> None:
        super().__init__(inputs, model, mask)
        self.space = space
        pieces = inputs.split([part.inputs for part in parts], dim=1)
        masks = split_mask(mask, inputs.shape[0], [part.mask for part in parts])
        self.children: list[ActionDistribution] = [
            part.factory(piece, model, allowed) for part, piece, allowed in zip(parts, pieces, masks, strict=True)
        ]

    def select(self, leaves: Sequence[int]) -> MultiActionDistribution:
        """The distribution of some of the leaves, as a Tuple."""
        chosen = copy.copy(self)
        spaces_of_leaves = [leaf for _, leaf in leaf_spaces(self.space)]
        chosen.space, chosen.mask = spaces.Tuple([spaces_of_leaves[leaf] for leaf in leaves]), None
        chosen.children = [self.children[leaf] for leaf in leaves]
        return chosen

    @classmethod
    def for_space(cls, action_space: Space[Any]) -> DistFactory:
        """A factory with the leaves of that space."""
        return partial(cls, space=action_space, parts=parts_of(action_space))

    def sample(self, generator: torch.Generator | None = None) -> Any:
        """Actions with the nesting of the space, leaves `[N, …]`."""
        return pack_leaves(self.space, iter([child.sample(generator) for child in self.children]))

    def rsample(self, generator: torch.Generator | None = None) -> Any:
        """Reparametrized actions, nested; raises an error if a leaf is not reparametrized."""
        return pack_leaves(self.space, iter([child.rsample(generator) for child in self.children]))

    def deterministic_sample(self) -> Any:
        """The likeliest actions, nested."""
        return pack_leaves(self.space, iter([child.deterministic_sample() for child in self.children]))

    def logp(self, actions: Any) -> Tensor:
        """Sum over the leaves, `[N]`; actions are dicts, tuples or nested batches."""
        leaves = leaf_values(self.space, actions)
        return reduce(add, [child.logp(leaf) for child, leaf in zip(self.children, leaves, strict=True)])

    def sampled_action_logp(self) -> Tensor:
        """Sum over the leaves, `[N]`."""
        return reduce(add, [child.sampled_action_logp() for child in self.children])

    def entropy(self) -> Tensor:
        """Sum over the leaves, `[N]`."""
        return reduce(add, [child.entropy() for child in self.children])

    def kl(self, other: MultiActionDistribution) -> Tensor:
        """Sum over the leaves, `[N]`."""
        return reduce(add, [child.kl(theirs) for child, theirs in zip(self.children, other.children, strict=True)])


def distribution_class(action_space: Space[Any]) -> type[ActionDistribution]:
    """The built-in distribution for a (supported) action space."""
    if isinstance(action_space, spaces.Dict | spaces.Tuple):
        return MultiActionDistribution
    return next(kind for kind in (Categorical, Bernoulli, MultiCategorical, DiagGaussian) if kind.serves(action_space))


def leaf_class(leaf: Space[Any], named: type[ActionDistribution] | None = None) -> type[ActionDistribution]:
    """The distribution of one leaf: `named` if it supports leaves of that kind, else the built-in one."""
    return named if named is not None and named.serves(leaf) else distribution_class(leaf)


def action_dist(
    named: type[ActionDistribution] | None,
    action_space: Space[Any],
    policy_space: Space[Any],
    config: Mapping[str, Any] | None = None,
) -> tuple[DistFactory, int]:
    """A factory of the distribution of a space, and the number of inputs per row.

    Args:
        named: the distribution that a user chose; `None` takes the built-in one.
        action_space: the action space of one environment; passed to `required_model_output_shape` and `check_space`.
        policy_space: space of the policy's actions, as `ActionDistribution.for_space`.
        config: the config of the model.

    Raises:
        UnsupportedSpaceError: `named` does not support the space, or a leaf of it.
    """
    served = [leaf for _, leaf in leaf_spaces(action_space) if named is not None and named.serves(leaf)]
    if isinstance(action_space, spaces.Dict | spaces.Tuple) and (named is None or served):
        for leaf in served:
            named.check_space(leaf)  # type: ignore[union-attr]
        parts = parts_of(policy_space, named, config)
        whole = partial(MultiActionDistribution, space=policy_space, parts=parts)
        return whole, sum(part.inputs for part in parts)
    dist_class = distribution_class(action_space) if named is None else named
    dist_class.check_space(action_space)
    factory = adapt(dist_class, dist_class.for_space(policy_space))
    return factory, int(dist_class.required_model_output_shape(action_space, config))


def log_std_columns(action_space: Space[Any], named: type[ActionDistribution] | None = None) -> list[int]:
    """The columns of the model's outputs that are logarithms of deviations; `free_log_std` makes them parameters."""
    columns, start = [], 0
    for _, leaf in leaf_spaces(action_space):
        cls = leaf_class(leaf, named)
        width = cls.required_model_output_shape(leaf)
        columns += range(start + width // 2, start + width) if issubclass(cls, DiagGaussian) else ()
        start += width
    return columns


def parts_of(
    action_space: Space[Any],
    named: type[ActionDistribution] | None = None,
    config: Mapping[str, Any] | None = None,
) -> tuple[Part, ...]:
    """One `Part` per leaf of a space, in the space's order; `named` and `config` as in `action_dist`."""
    parts = []
    for _, leaf in leaf_spaces(action_space):
        cls = leaf_class(leaf, named)
        mask = int(choices_of(leaf).sum()) if cls.maskable else 0
        size = int(cls.required_model_output_shape(leaf, config))
        parts.append(Part(adapt(cls, cls.for_space(leaf)), size, mask, cls.maskable))
    return tuple(parts)
