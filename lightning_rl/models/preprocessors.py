"""Turns observations into the flat float32 vectors that fully connected models read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.spaces import check_supported, choices_of, leaf_spaces, leaf_values, pack_leaves

__all__ = [
    "FlattenPreprocessor",
    "NestedPreprocessor",
    "NoPreprocessor",
    "OneHotPreprocessor",
    "Preprocessor",
    "make_preprocessor",
]


class Preprocessor:
    """Turns observations into vectors: a subclass defines `_init_shape`, and `transform` or (faster) `transform_batch`.

    Args:
        obs_space: space of a single environment's observations.
        options: the model's configuration.

    Attributes:
        shape: the shape of one preprocessed observation.
        size: its number of entries.

    Raises:
        ConfigError: the subclass lacks one of these methods.
    """

    def __init__(self, obs_space: Space[Any], options: Mapping[str, Any] | None = None) -> None:
        cls = type(self)
        if cls.transform is Preprocessor.transform and cls.transform_batch is Preprocessor.transform_batch:
            raise ConfigError(
                f"preprocessor {cls.__name__} defines neither transform(obs) nor transform_batch(obs): define one of "
                "them"
            )
        self.obs_space = obs_space
        self.shape = tuple(int(side) for side in self._init_shape(obs_space, dict(options or {})))
        self.size = int(np.prod(self.shape))

    def _init_shape(self, obs_space: Space[Any], options: dict[str, Any]) -> tuple[int, ...]:
        """Shape of one preprocessed observation."""
        raise NotImplementedError  # abstract

    def transform(self, obs: Any) -> np.ndarray:
        """One observation → float32 array of `shape`."""
        leaves = iter([torch.as_tensor(np.asarray(leaf)).unsqueeze(0) for leaf in leaf_values(self.obs_space, obs)])
        return self.transform_batch(pack_leaves(self.obs_space, leaves))[0].reshape(self.shape).numpy()

    def transform_batch(self, obs: Any) -> Tensor:
        """Observations `[N, *]`, nested tensors or a nested batch → float32 `[N, size]` on the same device."""
        leaves = leaf_values(self.obs_space, obs)
        arrays = [leaf.cpu().numpy() for leaf in leaves]
        rows = [self.transform(pack_leaves(self.obs_space, iter(row))) for row in zip(*arrays, strict=True)]
        return torch.from_numpy(np.stack(rows).astype(np.float32)).reshape(len(rows), self.size).to(leaves[0].device)

    def restore(self, flat: Tensor) -> Any:
        """Vectors `[N, size]` of `transform_batch` in the structure of the space, `[N, *shape]` or nested parts."""
        return flat.unflatten(1, self.shape)

    @property
    def observation_space(self) -> spaces.Box:
        """The space of preprocessed observations."""
        return spaces.Box(-np.inf, np.inf, self.shape, np.float32)


class NoPreprocessor(Preprocessor):
    """Passes a float Box vector on unchanged."""

    def _init_shape(self, obs_space: Space[Any], options: dict[str, Any]) -> tuple[int, ...]:
        return obs_space.shape or ()

    def transform_batch(self, obs: Tensor) -> Tensor:
        """`[N, size]` → the same tensor, as float32."""
        return obs if obs.dtype == torch.float32 else obs.to(torch.float32)


class FlattenPreprocessor(Preprocessor):
    """Flattens a Box or MultiBinary of any shape and dtype; values keep their units (a uint8 pixel stays 0 … 255)."""

    def _init_shape(self, obs_space: Space[Any], options: dict[str, Any]) -> tuple[int, ...]:
        return (int(np.prod(obs_space.shape or ())),)

    def transform_batch(self, obs: Tensor) -> Tensor:
        """`[N, *]` → float32 `[N, size]`."""
        return obs.reshape(obs.shape[0], self.size).to(torch.float32)

    def restore(self, flat: Tensor) -> Tensor:
        """`[N, size]` → `[N, *]` in the shape of the space."""
        return flat.reshape(flat.shape[0], *(self.obs_space.shape or ()))


class OneHotPreprocessor(Preprocessor):
    """Concatenates the one-hot vectors of all components of a Discrete or MultiDiscrete (of any shape)."""

    def __init__(self, obs_space: Space[Any], options: Mapping[str, Any] | None = None) -> None:
        choices = choices_of(obs_space)
        super().__init__(obs_space, options)
        start = np.asarray(getattr(obs_space, "start", 0), dtype=np.int64).ravel()
        # Output index of the value 0 of each component, [components].
        self.columns = torch.from_numpy(np.cumsum(choices) - choices - start)

    def _init_shape(self, obs_space: Space[Any], options: dict[str, Any]) -> tuple[int, ...]:
        return (int(choices_of(obs_space).sum()),)

    def transform_batch(self, obs: Tensor) -> Tensor:
        """Integers `[N]` or `[N, *]` → float32 `[N, size]`."""
        if self.columns.device != obs.device:
            self.columns = self.columns.to(obs.device)
        hot = obs.reshape(obs.shape[0], -1).long() + self.columns
        return torch.zeros(obs.shape[0], self.size, device=obs.device).scatter_(1, hot, 1.0)


class NestedPreprocessor(Preprocessor):
    """Concatenates the vectors of all leaves of a Dict or Tuple, in the space's own order, looked up by name.

    Args:
        obs_space, options: see `Preprocessor`.
        skipped: paths of leaves to leave out ("camera", "sensors.0"): images that a model reads from "obs".

    Attributes:
        parts: path → preprocessor of each leaf that is not left out.
    """

    def __init__(
        self, obs_space: Space[Any], options: Mapping[str, Any] | None = None, skipped: Collection[str] = ()
    ) -> None:
        leaves = list(leaf_spaces(obs_space))
        self.parts = {path: make_preprocessor(leaf, options) for path, leaf in leaves if path not in skipped}
        self._by_leaf = [self.parts.get(path) for path, _ in leaves]
        super().__init__(obs_space, options)

    def _init_shape(self, obs_space: Space[Any], options: dict[str, Any]) -> tuple[int, ...]:
        return (sum(part.size for part in self.parts.values()),)

    def transform_batch(self, obs: Any) -> Tensor:
        """Leaves of `[N, *]` → float32 `[N, size]`."""
        leaves = leaf_values(self.obs_space, obs)
        pairs = zip(self._by_leaf, leaves, strict=True)
        vectors = [part.transform_batch(leaf) for part, leaf in pairs if part is not None]
        return torch.cat(vectors, dim=1) if vectors else torch.zeros(leaves[0].shape[0], 0, device=leaves[0].device)

    def restore(self, flat: Tensor) -> Any:
        """The parts of `[N, size]`, nested like the space, each as its own preprocessor restores it."""
        parts = list(self.parts.values())
        pieces = flat.split([part.size for part in parts], dim=1)
        return pack_leaves(self.obs_space, (part.restore(piece) for part, piece in zip(parts, pieces, strict=True)))


def make_preprocessor(obs_space: Space[Any], options: Mapping[str, Any] | None = None) -> Preprocessor:
    """The built-in preprocessor of a space.

    Raises:
        UnsupportedSpaceError: no preprocessor supports the space; the message names the supported ones.
    """
    check_supported(obs_space, "observation")
    if isinstance(obs_space, spaces.Dict | spaces.Tuple):
        return NestedPreprocessor(obs_space, options)
    if isinstance(obs_space, spaces.Discrete | spaces.MultiDiscrete):
        return OneHotPreprocessor(obs_space, options)
    if isinstance(obs_space, spaces.Box) and len(obs_space.shape) == 1:
        return NoPreprocessor(obs_space, options)
    return FlattenPreprocessor(obs_space, options)
