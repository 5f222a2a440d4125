"""Bounds of a Box, for distributions over bounded actions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.models.distributions.continuous import Continuous
from lightning_rl.spaces import is_bounded_box

__all__ = ["Bound", "Bounded", "log_volume", "span"]

Bound = float | tuple[float, ...]  # the same for all entries, or one for each


class Bounded(Continuous):
    """A distribution between bounds; put it first among the bases.

    Args:
        inputs, model, mask, shape: see `Continuous`.
        low, high: bounds of the actions in the policy's space.
    """

    def __init__(
        self,
        inputs: Tensor,
        model: Any = None,
        mask: Tensor | None = None,
        *,
        shape: Sequence[int] | None = None,
        low: Bound = -1.0,
        high: Bound = 1.0,
    ) -> None:
        super().__init__(inputs, model, mask, shape=shape)
        self.low, self.high = low, high

    @classmethod
    def for_space(cls, action_space: Space[Any]) -> DistFactory:
        """A factory with the bounds of the space's actions, and their shape unless they are vectors."""
        assert isinstance(action_space, spaces.Box)
        form: dict[str, Any] = {} if len(action_space.shape) == 1 else {"shape": action_space.shape}
        for name, values in (("low", action_space.low.ravel()), ("high", action_space.high.ravel())):
            same = bool(np.all(values == values[0]))
            form[name] = float(values[0]) if same else tuple(values.tolist())
        return partial(cls, **form)

    @classmethod
    def check_space(cls, action_space: Space[Any]) -> None:
        """Refuse spaces other than float Boxes with finite bounds."""
        if not is_bounded_box(action_space):
            raise UnsupportedSpaceError(
                f"{cls.__name__} acts between bounds; {action_space} needs to be a float Box with finite low and high: "
                "set them, or leave model.custom_action_dist out"
            )

    def _unsquash(self, squashed: Tensor) -> Tensor:
        """`[N, A]` in [−1, 1] → actions `[N, *shape]` between the bounds."""
        if self.low != -1.0 or self.high != 1.0:
            low, width, _ = span(self.low, self.high, squashed.device)
            squashed = low + (squashed + 1.0) * 0.5 * width
        return self._reshape(squashed)


def span(low: Bound, high: Bound, device: torch.device) -> tuple[Any, Any, Any]:
    """`low`, the width, and the divisor that undoes the scaling (1 for a width of 0); numbers if all entries agree."""
    if isinstance(low, float) and isinstance(high, float):
        return low, high - low, high - low or 1.0
    return _tensors(low, high, device)


@lru_cache(maxsize=64)
def _tensors(low: Bound, high: Bound, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    with torch.inference_mode(False):  # inference tensors, created during evaluation, could not be used in training
        lows, highs = (torch.tensor(bound, device=device) for bound in (low, high))
        width = highs - lows
        return lows, width, torch.where(width == 0, 1.0, width)


@lru_cache(maxsize=64)
def log_volume(low: Bound, high: Bound, entries: int) -> float:
    """Σ log(high − low)."""
    widths = np.broadcast_to(np.subtract(high, low), entries)
    return float(np.log(np.where(widths == 0, 1.0, widths)).sum())
