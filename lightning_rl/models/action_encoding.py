"""Actions as vectors that a network reads."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from gymnasium import Space
from torch import Tensor

from lightning_rl.spaces import choices_of, is_continuous

__all__ = ["ActionEncoding"]


class ActionEncoding:
    """Encodes the actions of one leaf: a one-hot vector for each discrete entry, the values themselves for a float Box.

    Args:
        leaf: the action space's leaf; discrete actions count from 0, and −1, no action yet, becomes the zero vector.

    Attributes:
        size: width of the encoding.
    """

    def __init__(self, leaf: Space[Any]) -> None:
        self.choices: list[int] = [] if is_continuous(leaf) else choices_of(leaf).tolist()
        self.size = sum(self.choices) or math.prod(leaf.shape or ())

    def __call__(self, actions: Tensor, steps: int = 1) -> Tensor:
        """Actions `[N, …]`, or `[N, steps, …]` of several steps → float32 `[N, steps · size]`."""
        rows = actions.shape[0]
        if not self.choices:
            return actions.reshape(rows, -1).float()
        entries = actions.reshape(rows, steps, len(self.choices)).long() + 1  # 0: no action yet
        hot = [F.one_hot(entries[..., i], count + 1)[..., 1:] for i, count in enumerate(self.choices)]
        return torch.cat(hot, dim=-1).reshape(rows, -1).float()
