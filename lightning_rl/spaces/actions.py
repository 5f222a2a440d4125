"""Transforms actions between a policy's space and the environment's; no other code does.

A policy acts in its own space (integers from 0, Boxes in [−1, 1] if normalized); recorded actions and losses use that
space as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from lightning_rl.spaces.structure import children, leaf_spaces, leaf_values, pack_leaves
from lightning_rl.spaces.support import check_supported, choices_of, is_continuous

__all__ = ["ActionTransform", "squash", "unsquash"]


def unsquash(actions: Any, low: Any, high: Any) -> Any:
    """Scale actions from [−1, 1] to [low, high]; arrays or tensors of one kind."""
    return low + (actions + 1.0) * 0.5 * (high - low)


def squash(actions: Any, low: Any, high: Any) -> Any:
    """The inverse of `unsquash`; 0 where `low == high`."""
    width = high - low
    return (actions - low) * 2.0 / (width + (width == 0)) - 1.0 * (width != 0)


class ActionTransform:
    """Transforms actions between the policy's space and the environment's.

    Args:
        action_space: the action space of one environment.
        normalize: use [−1, 1] for bounded float Boxes in the policy's space; a Box with an infinite bound is not
            changed.
        clip: clip float Boxes to their bounds. Normalized ones, and finite bounds of Boxes that cannot be normalized,
            are always clipped.

    Raises:
        UnsupportedSpaceError: no action distribution supports the space.
    """

    def __init__(self, action_space: Space[Any], normalize: bool = True, clip: bool = False) -> None:
        check_supported(action_space, "action")
        self.action_space = action_space
        self.options = {"normalize": normalize, "clip": clip}
        self._leaves = [
            _Continuous(leaf, normalize, clip) if is_continuous(leaf) else _Counted(leaf)
            for _, leaf in leaf_spaces(action_space)
        ]
        self._only = None if isinstance(action_space, spaces.Dict | spaces.Tuple) else self._leaves[0]
        self.policy_space = self._policy_space(action_space, iter(self._leaves))
        """The space that actions are sampled, recorded and learned in."""

    def to_env(self, actions: Any) -> Any:
        """Policy-space tensors `[B, …]` as arrays in the environment's structure, dtype and bounds."""
        if self._only is not None:
            return self._only.to_env(actions)
        values = leaf_values(self.action_space, actions)
        return pack_leaves(
            self.action_space, iter([leaf.to_env(value) for leaf, value in zip(self._leaves, values, strict=True)])
        )

    def to_env_tensors(self, actions: Any) -> list[Tensor]:
        """The leaves of `to_env`, computed by torch: an exported policy holds these operations."""
        values = leaf_values(self.action_space, actions)
        return [leaf.to_env_tensor(value) for leaf, value in zip(self._leaves, values, strict=True)]

    def from_env(self, actions: Any) -> Any:
        """Environment actions `[B, …]` as policy-space tensors; the inverse of `to_env` inside the bounds."""
        values = leaf_values(self.action_space, actions)
        return pack_leaves(
            self.action_space, iter([leaf.from_env(value) for leaf, value in zip(self._leaves, values, strict=True)])
        )

    @property
    def log_scale(self) -> float:
        """Log of the volume in the environment's units for a unit of volume in the policy's: Σ log ∂env/∂policy."""
        return sum(
            float(np.log(leaf.half.astype(np.float64)).sum())
            for leaf in self._leaves
            if isinstance(leaf, _Continuous) and leaf.normalized
        )

    def _policy_space(self, space: Space[Any], leaves: Iterator[_Continuous | _Counted]) -> Space[Any]:
        if isinstance(space, spaces.Dict):  # pairs, so that the order of keys is kept
            return spaces.Dict([(name, self._policy_space(child, leaves)) for name, child in children(space)])
        if isinstance(space, spaces.Tuple):
            return spaces.Tuple([self._policy_space(child, leaves) for _, child in children(space)])
        return next(leaves).policy_space


class _Counted:
    """Transform of integers: the policy counts from 0, the environment from `start` or `low`."""

    def __init__(self, leaf: Space[Any]) -> None:
        self.dtype = leaf.dtype
        start: Any = leaf.low if isinstance(leaf, spaces.Box) else getattr(leaf, "start", 0)
        self.start = np.asarray(start, dtype=np.int64) if np.any(start) else None
        self.torch_dtype = torch.int8 if isinstance(leaf, spaces.MultiBinary) else torch.int64
        self.policy_space: Space[Any]
        if isinstance(leaf, spaces.Discrete):
            self.policy_space = spaces.Discrete(int(leaf.n))
        elif isinstance(leaf, spaces.MultiBinary):
            self.policy_space = leaf
        else:
            self.policy_space = spaces.MultiDiscrete(choices_of(leaf).reshape(leaf.shape or ()))

    def to_env(self, actions: Tensor) -> np.ndarray:
        counted = actions.numpy(force=True)
        if self.start is not None:
            counted = counted + self.start
        return counted if counted.dtype == self.dtype else counted.astype(self.dtype)

    def to_env_tensor(self, actions: Tensor) -> Tensor:
        counted = actions if self.start is None else actions + torch.as_tensor(self.start)
        return counted.to(_torch_dtype(self.dtype))

    def from_env(self, actions: Any) -> Tensor:
        counted = np.asarray(actions).astype(np.int64)
        return torch.from_numpy(counted if self.start is None else counted - self.start).to(self.torch_dtype)


class _Continuous:
    """Transform of float Boxes: un-squashed, clipped, or unchanged; bounds are in the environment's units."""

    def __init__(self, leaf: spaces.Box, normalize: bool, clip: bool) -> None:
        self.dtype = leaf.dtype
        self.low, self.high = leaf.low, leaf.high
        self.normalized = normalize and leaf.is_bounded()
        self.clipped = clip or normalize
        low, high = leaf.low.astype(np.float64), leaf.high.astype(np.float64)
        if self.normalized:
            self.middle, self.half = ((high + low) / 2).astype(leaf.dtype), ((high - low) / 2).astype(leaf.dtype)
        bounds = (-1.0, 1.0) if self.normalized else (low.astype(np.float32), high.astype(np.float32))
        self.policy_space: Space[Any] = spaces.Box(*bounds, shape=leaf.shape, dtype=np.float32)

    def to_env(self, actions: Tensor) -> np.ndarray:
        values = actions.numpy(force=True).astype(self.dtype)  # a copy, because environments may write to it
        if self.normalized:
            values *= self.half
            values += self.middle
        if self.clipped:
            np.maximum(values, self.low, out=values)
            np.minimum(values, self.high, out=values)
        return values

    def to_env_tensor(self, actions: Tensor) -> Tensor:
        values = actions.to(_torch_dtype(self.dtype))
        if self.normalized:
            values = values * torch.as_tensor(self.half) + torch.as_tensor(self.middle)
        if self.clipped:
            values = values.maximum(torch.as_tensor(self.low)).minimum(torch.as_tensor(self.high))
        return values

    def from_env(self, actions: Any) -> Tensor:
        values = np.asarray(actions, dtype=np.float64)
        if self.normalized:
            values = squash(values, self.low.astype(np.float64), self.high.astype(np.float64))
        return torch.from_numpy(np.asarray(values, dtype=np.float32))


def _torch_dtype(dtype: Any) -> torch.dtype:
    return getattr(torch, np.dtype(dtype).name)  # torch 2.8 and 2.9 cannot export a tensor that nothing uses
