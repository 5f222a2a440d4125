"""The residual convolutions of IMPALA's large network."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightning_rl.models.layers import ACTIVATIONS, initialize

__all__ = ["ResidualStack", "residual_stacks"]

BLOCKS = 2  # per stack
# Activations of `layers` may write to their input in place; here the input is needed again.
KEEPING_INPUT = {**ACTIVATIONS, "tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}


class ResidualStack(nn.Module):
    """A convolution, a maximum over 3 × 3 pixels that halves the sides, and two residual blocks.

    Espeholt et al. 2018 (IMPALA), arXiv:1802.01561, figure 3, right.

    Args:
        channels: channels of the input.
        out_channels: channels of the output.
        activation: activation before each convolution of a block; one of `ACTIVATIONS`.
        initializer: see `initialize`.
        branch_scale: factor on the initial weights at the end of each block, so that the outputs of many blocks stay
            small.
    """

    def __init__(
        self, channels: int, out_channels: int, activation: str, initializer: str, branch_scale: float = 1.0
    ) -> None:
        super().__init__()
        self.keeping, self.in_place = KEEPING_INPUT[activation], ACTIVATIONS[activation]
        gain = math.sqrt(2) if initializer == "orthogonal" else 1.0
        self.first = _same_size(channels, out_channels, initializer, 1.0)  # no activation comes before it
        self.blocks = nn.ModuleList(
            _same_size(out_channels, out_channels, initializer, scale)
            for _ in range(BLOCKS)
            for scale in (gain, gain * branch_scale)
        )

    def forward(self, x: Tensor) -> Tensor:
        """`[N, channels, H, W]` → `[N, out_channels, ⌈H / 2⌉, ⌈W / 2⌉]`."""
        x = F.max_pool2d(self.first(x), 3, stride=2, padding=1)
        for start, end in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            x = x + end(self.in_place(start(self.keeping(x))))
        return x


def residual_stacks(channels: int, widths: Sequence[int], activation: str, initializer: str) -> list[ResidualStack]:
    """One residual stack for each of `widths`; the input has `channels` channels."""
    branch_scale = 1.0 / math.sqrt(BLOCKS * len(widths))
    before = [channels, *widths[:-1]]
    return [
        ResidualStack(taken, given, activation, initializer, branch_scale)
        for taken, given in zip(before, widths, strict=True)
    ]


def _same_size(channels: int, out_channels: int, initializer: str, gain: float) -> nn.Conv2d:
    layer = nn.Conv2d(channels, out_channels, 3, padding=1)
    initialize(layer, initializer, gain)
    return layer
