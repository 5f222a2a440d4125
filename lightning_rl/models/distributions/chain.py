"""The order in which the parts of an action are sampled, and networks that compute each part's parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from gymnasium import Space, spaces
from torch import Tensor, nn

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.models.distributions.nested import Part, parts_of
from lightning_rl.models.layers import MLP, ActionHead
from lightning_rl.spaces import choices_of, leaf_spaces, leaf_values, pack_leaves

__all__ = ["AutoregressiveHeads", "Chain"]


class Chain:
    """The parts of an action space in sampling order, and their encoding as one vector.

    The parts are the leaves of a Dict or Tuple, or the entries of a MultiDiscrete, MultiBinary or integer Box. The
    encoding of a discrete part is one-hot (one vector for each of its entries), that of a Box is its values.

    Args:
        action_space: of one environment, or of its policy's actions.

    Raises:
        UnsupportedSpaceError: the space has one part only.
    """

    def __init__(self, action_space: Space[Any]) -> None:
        self.nested = isinstance(action_space, spaces.Dict | spaces.Tuple)
        if self.nested:
            self.space: Space[Any] = action_space
        elif isinstance(action_space, spaces.Discrete) or getattr(action_space.dtype, "kind", "f") == "f":
            raise UnsupportedSpaceError(
                f"an autoregressive distribution needs an action of several parts; {action_space} has one: use a "
                "Tuple, Dict or MultiDiscrete, or leave model.custom_action_dist out"
            )
        else:
            self.space = spaces.Tuple([spaces.Discrete(count) for count in choices_of(action_space).tolist()])
        self.shape = action_space.shape
        self.dtype = torch.int8 if isinstance(action_space, spaces.MultiBinary) else torch.int64
        self.parts: tuple[Part, ...] = parts_of(self.space)
        self.choices = [_choices(leaf) for _, leaf in leaf_spaces(self.space)]
        pairs = zip(self.choices, leaf_spaces(self.space), strict=True)
        self.widths = [sum(counts) or math.prod(leaf.shape or ()) for counts, (_, leaf) in pairs]
        self.outputs = [part.inputs for part in self.parts]
        self.masks = [part.mask for part in self.parts]

    def split(self, actions: Any) -> list[Tensor]:
        """The parts, `[N, …]` each, of a batch of actions."""
        return leaf_values(self.space, actions) if self.nested else list(actions.flatten(1).unbind(1))

    def join(self, parts: Sequence[Tensor]) -> Any:
        """The inverse of `split`."""
        if self.nested:
            return pack_leaves(self.space, iter(parts))
        return torch.stack(list(parts), dim=1).view(parts[0].shape[0], *(self.shape or ())).to(self.dtype)

    def encode(self, part: int, actions: Tensor) -> Tensor:
        """The encoding of one part's actions, `[N, width]`."""
        if not self.choices[part]:
            return actions.reshape(actions.shape[0], -1).float()
        entries = actions.reshape(actions.shape[0], -1).long()
        hot = [F.one_hot(entries[:, i], count) for i, count in enumerate(self.choices[part])]
        return torch.cat(hot, dim=1).float()


class AutoregressiveHeads(nn.Module):
    """A small network for each part of an action; its inputs are the context and the parts before.

    Args:
        action_space: of one environment.
        context_size: width of the model's outputs.
        hiddens: widths of each network's hidden layers.
        activation: of these.
    """

    def __init__(
        self,
        action_space: Space[Any],
        context_size: int,
        hiddens: Sequence[int] = (64,),
        activation: str = "tanh",
    ) -> None:
        super().__init__()
        chain = Chain(action_space)
        self.before = [sum(chain.widths[:part]) for part in range(len(chain.parts))]
        self.trunks = nn.ModuleList([MLP(context_size + width, hiddens, activation) for width in self.before])
        self.heads = nn.ModuleList(
            [
                ActionHead(trunk.size, outputs, "orthogonal")  # type: ignore[arg-type]
                for trunk, outputs in zip(self.trunks, chain.outputs, strict=True)
            ]
        )

    def forward(self, context: Tensor, chosen: Tensor) -> Tensor:
        """Parameters of all parts, as `AutoregressiveDistribution` requires of an `action_model`."""
        nets = zip(self.trunks, self.heads, self.before, strict=True)
        return torch.cat(
            [head(trunk(torch.cat([context, chosen[:, :width]], dim=1))) for trunk, head, width in nets], dim=1
        )


def _choices(leaf: Space[Any]) -> list[int]:
    """Number of values of each entry of a discrete leaf; empty for a float Box."""
    return [] if isinstance(leaf, spaces.Box) and leaf.dtype.kind == "f" else choices_of(leaf).tolist()
