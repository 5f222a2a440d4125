"""Fully connected residual networks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lightning_rl.errors import ConfigError
from lightning_rl.fast_torch import lean_linear
from lightning_rl.models.layers import ACTIVATIONS, activation_name

__all__ = ["ResidualMLP", "ResidualMLPs"]

EXPANSION = 4  # hidden units of a block for each unit of its output


class ResidualBlock(nn.Module):
    """Adds two layers' output, computed from the normalized input, to the input.

    Args:
        width: width W of input and output.
        activation: activation of the 4W hidden units; one of `ACTIVATIONS`.
    """

    def __init__(self, width: int, activation: str) -> None:
        super().__init__()
        self.norm, self.activation = nn.LayerNorm(width), ACTIVATIONS[activation]
        self.up, self.down = nn.Linear(width, EXPANSION * width), nn.Linear(EXPANSION * width, width)
        for layer in (self.up, self.down):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """`[N, W]` → `[N, W]`."""
        return x + lean_linear(self.down, self.activation(lean_linear(self.up, self.norm(x))))


class ResidualMLP(nn.Module):
    """SimBa: a linear layer, residual blocks and a layer normalization. Lee et al. 2025, arXiv:2410.09754.

    Args:
        size: width of the input.
        hiddens: width of each block, the same for all.
        activation: activation of the blocks' hidden units; one of `ACTIVATIONS`.
        outputs: width of a linear layer at the end; `None`: no linear layer.

    Raises:
        ConfigError: there is no block, or their widths differ.
    """

    def __init__(self, size: int, hiddens: Sequence[int], activation: str, outputs: int | None = None) -> None:
        super().__init__()
        if len(set(hiddens)) != 1:
            raise ConfigError(
                f"model.fcnet_hiddens={list(hiddens)}; expected at least one residual block (model.fcnet_residual="
                "true), and the same width for each",
                key="model.fcnet_hiddens",
                value=list(hiddens),
            )
        self.size, name = hiddens[0], activation_name(activation)
        """Width of the features."""
        self.first = nn.Linear(size, self.size)
        self.blocks = nn.Sequential(*(ResidualBlock(width, name) for width in hiddens))
        self.norm = nn.LayerNorm(self.size)
        self.last = None if outputs is None else nn.Linear(self.size, outputs)
        for layer in (self.first, self.last):
            if layer is not None:
                nn.init.orthogonal_(layer.weight)
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """`[N, size of the input]` → `[N, size]` or `[N, outputs]`."""
        features = self.norm(self.blocks(lean_linear(self.first, x)))
        return features if self.last is None else lean_linear(self.last, features)


class ResidualMLPs(nn.ModuleList):
    """Several such networks side by side, as `ParallelMLP`; `[N, size]` or `[K, N, size]` → `[K, N, outputs]`."""

    def forward(self, x: Tensor, count: int | None = None) -> Tensor:
        """The outputs of the first `count` networks (`None`: of all), for the same input or for one input each."""
        inputs = x if x.dim() == 3 else x.expand(count or len(self), *x.shape)
        return torch.stack([network(own) for network, own in zip(self, inputs, strict=False)])
