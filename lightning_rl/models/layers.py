"""Layers that the built-in models share: an MLP, heads for actions and values, and weight initialization."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightning_rl.errors import ConfigError
from lightning_rl.fast_torch import lean_linear
from lightning_rl.models.batch_norm import BatchNorm, NormPlace
from lightning_rl.schema.signatures import OneOf

__all__ = ["ACTIVATIONS", "MLP", "ActionHead", "Activation", "ValueHead", "activation_name", "initialize"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    # In place where the gradient allows it: the input is the fresh output of a linear layer or convolution, used
    # nowhere else.
    "tanh": torch.tanh_,
    "relu": torch.relu_,
    "silu": F.silu,
    "swish": F.silu,
    "elu": F.elu,
    "gelu": F.gelu,
    "leaky_relu": F.leaky_relu,
    "sigmoid": torch.sigmoid_,
    "linear": lambda x: x,
}
Activation = Annotated[str, OneOf(tuple(ACTIVATIONS))]
MOST_WEIGHTS = 2**28  # of one MLP: 1 GiB, and as much for its gradient, twice as much for Adam's moments


def activation_name(name: str | None) -> str:
    """The name of an activation in `ACTIVATIONS`: in lower case, and "linear" for `None`."""
    return "linear" if name is None else name.lower()


def initialize(layer: nn.Linear | nn.Conv2d, initializer: str, gain: float | None = None) -> None:
    """Set the initial weights of a layer, and its biases to zero (except with "default").

    Args:
        layer: the layer, changed in place.
        initializer: "orthogonal" (Saxe et al. 2013, arXiv:1312.6120), "normc" (columns of norm `gain`, as in OpenAI
            baselines and RLlib), or "default" (PyTorch's own; `gain` is not used).
        gain: scale of the weights; `None`: that of hidden layers, √2 for "orthogonal" and 1 for "normc".
    """
    if initializer == "default":
        return
    with torch.no_grad():
        fill, hidden_gain = {"orthogonal": (nn.init.orthogonal_, math.sqrt(2)), "normc": (_normc_, 1.0)}[initializer]
        fill(layer.weight, hidden_gain if gain is None else gain)
        if layer.bias is not None:
            layer.bias.zero_()


def _normc_(weight: Tensor, gain: float) -> None:
    rows = weight.normal_().flatten(1)
    rows *= gain / rows.norm(dim=1, keepdim=True)


class MLP(nn.Module):
    """Linear layers, each followed by its activation.

    Args:
        size: width of the input.
        hiddens: widths of the layers; an empty list gives the identity.
        activations: name of the activation of all layers, or one name per layer; `None`: no activation.
        initializer: see `initialize`.
        layer_norm: normalize the output of each layer, before its activation (Ba et al. 2016, arXiv:1607.06450).
        batch_norm: normalize the input, and each layer's output "before" (the layers then have no bias) or "after" its
            activation, by `BatchNorm`.

    Raises:
        ConfigError: the layers would have more than 2²⁸ weights.
    """

    def __init__(
        self,
        size: int,
        hiddens: Sequence[int],
        activations: str | Sequence[str | None] | None,
        initializer: str = "orthogonal",
        *,
        layer_norm: bool = False,
        batch_norm: NormPlace | None = None,
    ) -> None:
        super().__init__()
        widths = [size, *hiddens]
        if (weights := sum(before * after for before, after in pairwise(widths))) > MOST_WEIGHTS:
            raise ConfigError(
                f"layers of widths {list(hiddens)} behind {size} inputs have {weights:,} weights; expected at most "
                f"{MOST_WEIGHTS:,}: lower model.fcnet_hiddens or model.post_fcnet_hiddens"
            )
        biased = batch_norm != "before"
        self.layers = nn.ModuleList([nn.Linear(before, after, bias=biased) for before, after in pairwise(widths)])
        names = [activations] * len(hiddens) if isinstance(activations, str | None) else activations
        self.activations = [activation_name(name) for name in names]
        self.norms = nn.ModuleList([nn.LayerNorm(width) for width in hiddens]) if layer_norm else None
        self.batch_norm = batch_norm
        self.batch_norms = nn.ModuleList([BatchNorm(width) for width in widths]) if batch_norm else None
        self.size = widths[-1]
        """Width of the output."""
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            initialize(layer, initializer)

    def forward(self, x: Tensor) -> Tensor:
        """`[N, size of the input]` → `[N, size]`."""
        if self.batch_norms is not None or self.norms is not None:
            return self._normed(x)
        for layer, name in zip(self.layers, self.activations, strict=True):
            x = ACTIVATIONS[name](lean_linear(layer, x))
        return x

    def _normed(self, x: Tensor) -> Tensor:
        batch_norms = self.batch_norms or ()
        x = batch_norms[0](x) if batch_norms else x
        for number, (layer, name) in enumerate(zip(self.layers, self.activations, strict=True)):
            x = layer(x)
            if self.norms is not None:
                x = self.norms[number](x)
            if self.batch_norm == "before":
                x = batch_norms[number + 1](x)
            x = ACTIVATIONS[name](x)
            if self.batch_norm == "after":
                x = batch_norms[number + 1](x)
        return x


class ActionHead(nn.Module):
    """The last layer, which computes the parameters of an action distribution.

    Args:
        size: width of the input.
        num_outputs: width of the output.
        initializer: see `initialize`, with gain 0.01, so that the initial policy is nearly uniform.
        free_columns: number of outputs that are learned parameters instead of functions of the input (`free_log_std`).
        free_init: initial value of these parameters.
        linear: False returns the input, with the free columns inserted (`no_final_linear`).
    """

    def __init__(
        self,
        size: int,
        num_outputs: int,
        initializer: str = "orthogonal",
        free_columns: Sequence[int] = (),
        free_init: float = 0.0,
        *,
        linear: bool = True,
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(size, num_outputs - len(free_columns)) if linear else None
        if self.linear is not None:
            initialize(self.linear, initializer, 0.01)
        self.free = nn.Parameter(torch.full((len(free_columns),), float(free_init))) if free_columns else None
        bound = [column for column in range(num_outputs) if column not in set(free_columns)]
        order = torch.tensor([*bound, *free_columns]).argsort()
        in_order = order.tolist() == list(range(num_outputs))
        self.order: Tensor | None
        self.register_buffer("order", None if in_order else order, persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """`[N, size]` → `[N, num_outputs]`."""
        outputs = features if self.linear is None else lean_linear(self.linear, features)
        if self.free is None:
            return outputs
        outputs = torch.cat([outputs, self.free.to(outputs.dtype).expand(outputs.shape[0], -1)], dim=1)
        return outputs if self.order is None else outputs[:, self.order]


class ValueHead(nn.Module):
    """One linear unit; gain 1 for "orthogonal", 0.01 for "normc".

    Args:
        size: width of the input.
        initializer: see `initialize`.
    """

    def __init__(self, size: int, initializer: str = "orthogonal") -> None:
        super().__init__()
        self.linear = nn.Linear(size, 1)
        initialize(self.linear, initializer, 1.0 if initializer == "orthogonal" else 0.01)

    def forward(self, features: Tensor) -> Tensor:
        """`[N, size]` → `[N]`."""
        return lean_linear(self.linear, features).squeeze(1)
