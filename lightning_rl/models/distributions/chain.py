"""The order in which the parts of an action are sampled, and networks that compute each part's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.models.action_encoding import ActionEncoding
from lightning_rl.models.distributions.nested import Part, parts_of
from lightning_rl.models.layers import MLP, ActionHead
from lightning_rl.spaces import choices_of, is_continuous, leaf_spaces, leaf_values, pack_leaves

__all__ = ["AutoregressiveHeads", "Chain"]


class Chain:
    """The parts of an action space in sampling order, and their encoding as one vector.

    The parts are the leaves of a Dict or Tuple, or the entries of a MultiDiscrete, MultiBinary or integer Box; each is
    encoded by `ActionEncoding`.

    Args:
        action_space: action space of a single environment, or of its policy.

    Raises:
        UnsupportedSpaceError: the space has one part only.
    """

    def __init__(self, action_space: Space[Any]) -> None:
        self.nested = isinstance(action_space, spaces.Dict | spaces.Tuple)
        if self.nested:
            self.space: Space[Any] = action_space
        elif isinstance(action_space, spaces.Discrete) or is_continuous(action_space):
            raise UnsupportedSpaceError(
                f"an autoregressive distribution needs an action of several parts; {action_space} has one: use a "
                "Tuple, Dict or MultiDiscrete, or leave model.custom_action_dist out"
            )
        else:
            self.space = spaces.Tuple([spaces.Discrete(count) for count in choices_of(action_space).tolist()])
        self.shape = action_space.shape
        self.dtype = torch.int8 if isinstance(action_space, spaces.MultiBinary) else torch.int64
        self.parts: tuple[Part, ...] = parts_of(self.space)
        self.encodings = [ActionEncoding(leaf) for _, leaf in leaf_spaces(self.space)]
        self.widths = [encoding.size for encoding in self.encodings]
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

    def parameters(self, model: Any, context: Tensor, chosen: Tensor) -> tuple[Tensor, ...]:
        """The parameters of every part, which the model's `action_model` computes.

        Args:
            model: a model with an `action_model`, see `AutoregressiveDistribution`.
            context: `[N, K]`, its outputs.
            chosen: `[N, E]`, encodings of the parts side by side.
        """
        outputs = model.action_model(context, chosen)
        outputs = torch.cat(list(outputs), dim=1) if isinstance(outputs, tuple | list) else outputs
        return outputs.split(self.outputs, dim=1)


class AutoregressiveHeads(nn.Module):
    """A small network for each part of an action; its inputs are the context and the parts before.

    Args:
        action_space: action space of a single environment.
        context_size: width of the model's outputs.
        hiddens: widths of each network's hidden layers.
        activation: activation of these layers.
    """

    def __init__(
        self, action_space: Space[Any], context_size: int, hiddens: Sequence[int] = (64,), activation: str = "tanh"
    ) -> None:
        super().__init__()
        chain = Chain(action_space)
        self.before = [sum(chain.widths[:part]) for part in range(len(chain.parts))]
        trunks = [MLP(context_size + width, hiddens, activation) for width in self.before]
        heads = [ActionHead(trunk.size, outputs) for trunk, outputs in zip(trunks, chain.outputs, strict=True)]
        self.trunks, self.heads = nn.ModuleList(trunks), nn.ModuleList(heads)

    def forward(self, context: Tensor, chosen: Tensor) -> Tensor:
        """Parameters of all parts, as `AutoregressiveDistribution` requires of an `action_model`."""
        nets = zip(self.trunks, self.heads, self.before, strict=True)
        parts = [head(trunk(torch.cat([context, chosen[:, :width]], dim=1))) for trunk, head, width in nets]
        return torch.cat(parts, dim=1)
