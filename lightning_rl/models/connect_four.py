"""A network for games whose discs fall to the lowest free cell of a column, as in Connect Four."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from gymnasium import Space
from torch import Tensor, nn

from lightning_rl.models.layers import initialize
from lightning_rl.models.model import LastForward, Model

__all__ = ["ConnectFourNetwork", "MirroredConv2d", "landing_cells"]


class ConnectFourNetwork(Model):
    """Rates a column by what is around the cell in which its disc would land.

    A fully connected network has to find out for each cell again what a line of four is, and misses half of the wins
    that it could take at once. Here all cells share one window, wide enough for every line through its center, and a
    column's logit is the score of its landing cell. Mirrored boards get mirrored logits and equal values.

    Args:
        obs_space: Dict with "observation" `[height, width, 2]`, with the top row first and the agent's discs before the
            opponent's, as in PettingZoo's `connect_four_v3`; the distribution reads its action mask.
        action_space: Discrete, one action for each column.
        num_outputs: number of columns.
        channels: features of each cell; half of them are the other half's mirror images.
        hidden: units of the value's hidden layer.
    """

    values_are_cheap = True
    forbids_actions = False

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        num_outputs: int,
        *,
        channels: int = 64,
        hidden: int = 64,
        **keywords: Any,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, **keywords)
        self.window = MirroredConv2d(4, channels, 7, mirrored_input=False)
        self.mixing = MirroredConv2d(channels, channels, 1)
        self.score = nn.Conv2d(channels // 2, 1, 1)
        self.value = nn.Sequential(nn.Linear(channels, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        initialize(self.score, "orthogonal", gain=0.01)
        self._last = LastForward()

    def forward(self, input_dict: Any, state: Any = (), seq_lens: Any = None) -> tuple[Tensor, list[Tensor]]:
        """Logits `[N, columns]`, and no state; the logit of a full column is 0."""
        discs = input_dict["obs"]["observation"].movedim(-1, 1).to(self.score.weight.dtype)
        landing = landing_cells(discs)
        cells = torch.cat([discs, landing, torch.ones_like(landing)], dim=1)  # ones: where the board ends
        features = F.relu(self.mixing(F.relu(self.window(cells))))
        first, second = features.chunk(2, dim=1)
        features = first + second  # [N, channels / 2, height, width]; a mirrored board mirrors it
        self._last.features = torch.cat([(features * landing).amax((2, 3)), features.mean((2, 3))], dim=1)
        return (self.score(features) * landing).sum((1, 2)), []

    def value_function(self) -> Tensor:
        """Values `[N]` of the last forward, within ±1: those of games that are won, drawn or lost."""
        return self.value(self._last.get()).squeeze(1).tanh()


class MirroredConv2d(nn.Module):
    """A convolution whose output channels are pairs: mirroring the input from left to right swaps and mirrors them.

    Cohen and Welling 2016, arXiv:1602.07576, for the group of two elements.

    Args:
        in_channels: channels of the input; with `mirrored_input`, they are pairs, with the second half mirroring the
            first.
        out_channels: channels of the output, an even number; the second half mirrors the first.
        kernel: odd side of the window; the output has the input's size.
        mirrored_input: `False` for a plain image.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel: int, mirrored_input: bool = True) -> None:
        super().__init__()
        self.first_half = nn.Conv2d(in_channels, out_channels // 2, kernel, padding=kernel // 2)
        self.mirrored_input = mirrored_input

    def forward(self, x: Tensor) -> Tensor:
        """`[N, in, height, width]` to `[N, out, height, width]`."""
        weight = self.first_half.weight
        swapped = torch.cat(weight.chunk(2, dim=1)[::-1], dim=1) if self.mirrored_input else weight
        weight, bias = torch.cat([weight, swapped.flip(3)]), self.first_half.bias
        return F.conv2d(x, weight, None if bias is None else torch.cat([bias, bias]), padding=self.first_half.padding)


def landing_cells(discs: Tensor) -> Tensor:
    """1.0 where the next disc of a column would land, else 0.0.

    Args:
        discs: own and the opponent's, `[N, 2, height, width]`, the top row first, 1.0 where there is one.

    Returns:
        `[N, 1, height, width]`.
    """
    taken = discs.sum(1, keepdim=True)
    below = F.pad(taken[:, :, 1:], (0, 0, 0, 1), value=1.0)  # the floor carries the lowest row
    return below * (1.0 - taken)
