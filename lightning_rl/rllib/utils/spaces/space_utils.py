"""RLlib's functions of nested spaces, and of actions of such spaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from lightning_rl.sample_batch import map_leaves
from lightning_rl.spaces import leaf_spaces
from lightning_rl.spaces.actions import squash, unsquash

__all__ = [
    "clip_action",
    "flatten_space",
    "flatten_to_single_ndarray",
    "get_base_struct_from_space",
    "normalize_action",
    "unbatch",
    "unsquash_action",
]


def flatten_space(space: Space[Any]) -> list[Space[Any]]:
    """The parts of Dict and Tuple spaces that are neither."""
    return [leaf for _, leaf in leaf_spaces(space)]


def get_base_struct_from_space(space: Space[Any]) -> Any:
    """Dicts and tuples of spaces in place of Dict and Tuple spaces."""
    if isinstance(space, spaces.Tuple):
        return tuple(map(get_base_struct_from_space, space.spaces))
    if isinstance(space, spaces.Dict):
        return {name: get_base_struct_from_space(part) for name, part in space.spaces.items()}
    return space


def flatten_to_single_ndarray(input_: Any) -> np.ndarray:
    """Nested arrays as one vector `[F]`; an array by itself stays as it is."""
    if not isinstance(input_, Mapping | tuple | list):
        return input_
    return np.concatenate([np.reshape(leaf, -1) for leaf in _leaves(input_)])


def unbatch(batches_struct: Any) -> list[Any]:
    """Nested arrays `[N, *]` as a list of N nested values."""
    rows = len(_leaves(batches_struct)[0])
    return [map_leaves(lambda leaf, row=row: leaf[row], batches_struct) for row in range(rows)]


def clip_action(action: Any, action_space: Any) -> Any:
    """An action with its Boxes clipped to their bounds.

    Args:
        action: dicts and tuples of arrays, as the space.
        action_space: the space, or `get_base_struct_from_space` of it.
    """
    return _with_boxes(lambda value, box: np.clip(value, box.low, box.high), action, action_space)


def unsquash_action(action: Any, action_space_struct: Any) -> Any:
    """An action whose bounded Boxes of floats are scaled from [−1, 1] to their bounds, and clipped.

    Args:
        action, action_space_struct: see `clip_action`.
    """

    def scale(value: Any, box: spaces.Box) -> Any:
        if not (box.is_bounded() and np.issubdtype(box.dtype, np.floating)):
            return value
        return np.clip(unsquash(np.asarray(value), box.low, box.high), box.low, box.high)

    return _with_boxes(scale, action, action_space_struct)


def normalize_action(action: Any, action_space_struct: Any) -> Any:
    """The inverse of `unsquash_action`."""

    def scale(value: Any, box: spaces.Box) -> Any:
        bounded = box.is_bounded() and np.issubdtype(box.dtype, np.floating)
        return squash(np.asarray(value), box.low, box.high) if bounded else value

    return _with_boxes(scale, action, action_space_struct)


def _with_boxes(change: Callable[[Any, spaces.Box], Any], action: Any, struct: Any) -> Any:
    struct = get_base_struct_from_space(struct) if isinstance(struct, Space) else struct
    if isinstance(struct, Mapping):
        return {name: _with_boxes(change, action[name], part) for name, part in struct.items()}
    if isinstance(struct, tuple):
        return tuple(_with_boxes(change, value, part) for value, part in zip(action, struct, strict=True))
    return change(action, struct) if isinstance(struct, spaces.Box) else action


def _leaves(value: Any) -> list[Any]:
    if not isinstance(value, Mapping | tuple | list):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value
    return [leaf for part in parts for leaf in _leaves(part)]
