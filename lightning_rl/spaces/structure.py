"""Walks nested spaces and values; only this file defines the order of leaves.

Nested values are dicts, tuples or nested batches; "leaf" means a part that is neither Dict nor Tuple.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from gymnasium import Space, spaces

__all__ = ["as_arrays", "children", "leaf_spaces", "leaf_values", "naming_another_form", "pack_leaves", "plain_key"]


def leaf_spaces(space: Space[Any], path: str = "") -> Iterator[tuple[str, Space[Any]]]:
    """(path, space) of every leaf in the space's own order; the path is "" if the space itself is a leaf."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for name, child in children(space):
            yield from leaf_spaces(child, f"{path}.{name}" if path else str(name))
    else:
        yield path, space


def leaf_values(space: Space[Any], value: Any) -> list[Any]:
    """Leaves of a nested value (dict, tuple or nested batch), looked up by name in the space's own order."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return [value]
    # Batches store tuples under the names "0", "1", …, and all parts under text: a Dict's keys may be integers.
    is_plain = isinstance(value, Mapping | tuple | list)
    by_position = is_plain and isinstance(space, spaces.Tuple) and not isinstance(value, Mapping)
    found: list[Any] = []
    for position, (name, child) in enumerate(children(space)):
        key: Any = position if by_position else name if is_plain else str(name)
        found += leaf_values(child, value[key])
    return found


def pack_leaves(space: Space[Any], leaves: Iterator[Any]) -> Any:
    """The inverse of `leaf_values`: dicts and tuples nested like `space`, filled from `leaves` in order."""
    if isinstance(space, spaces.Dict):
        return {name: pack_leaves(child, leaves) for name, child in children(space)}
    if isinstance(space, spaces.Tuple):
        return tuple(pack_leaves(child, leaves) for _, child in children(space))
    return next(leaves)


def children(space: Space[Any]) -> list[tuple[str, Space[Any]]]:
    """(name, space) of the parts of a Dict, or of a Tuple, whose parts are named "0", "1", … as in nested batches."""
    if isinstance(space, spaces.Dict):
        return list(space.spaces.items())
    assert isinstance(space, spaces.Tuple)
    return [(str(position), child) for position, child in enumerate(space.spaces)]


def plain_key(key: Any) -> str | int | None:
    """The text or integer that equals a Dict's key, such as a member of `IntEnum`; `None` if no such value does.

    Batches name parts by `str(key)`, which has to be that of the plain value as well.
    """
    plain = int(key) if isinstance(key, int | np.integer) else str(key)
    return plain if plain == key and str(plain) == str(key) else None


def as_arrays(space: Space[Any], value: Any) -> Any:
    """A value of the space with arrays as its leaves, those of images as bytes.

    Raises:
        ValueError: a leaf has another shape than in the space, or another value than a byte where the space has bytes.
    """
    arrays = []
    for (path, leaf), part in zip(leaf_spaces(space), leaf_values(space, value), strict=True):
        array, name = np.asarray(part), path or "the observation"
        if leaf.shape is not None and array.shape != leaf.shape:
            raise ValueError(f"{name} has shape {array.shape}; expected {leaf}")
        if leaf.dtype == np.uint8 != array.dtype:
            given, array = array, array.astype(np.uint8)
            if (given != array).any():
                raise ValueError(f"{name} holds {given.dtype} other than whole numbers from 0 to 255; expected {leaf}")
        arrays.append(array)
    return pack_leaves(space, iter(arrays))


@contextmanager
def naming_another_form(space: Space[Any], value: Any) -> Iterator[None]:
    """Context in which an error is explained, if a value of the space has another form than the space.

    Args:
        space: the space of the observations.
        value: one observation, as the environment gave it.

    Raises:
        ValueError: names the part that has another form, and what was expected.
    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        if difference := _form_difference(space, value, "the observation"):
            raise ValueError(difference) from error
        raise


def _form_difference(space: Space[Any], value: Any, name: str) -> str:
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        try:
            array = np.asarray(value)
        except (TypeError, ValueError):  # lists of different lengths, a tensor of another device
            return f"{name} is a {type(value).__name__} that makes no array; expected {space}"
        if array.shape == space.shape and array.dtype.kind in "biuf":
            return ""
        return f"{name} has shape {array.shape} and type {array.dtype}; expected {space}"
    kind = dict if isinstance(space, spaces.Dict) else tuple
    parts = children(space)
    if not isinstance(value, kind):
        return f"{name} is of type {type(value).__name__}; expected a {kind.__name__} of {[key for key, _ in parts]}"
    named = value if isinstance(value, dict) else {str(position): part for position, part in enumerate(value)}
    if missing := [key for key, _ in parts if key not in named]:
        return f"{name} has no part {missing[0]!r}; expected {[key for key, _ in parts]}"
    found = (_form_difference(child, named[key], f"{name}[{key!r}]") for key, child in parts)
    return next((difference for difference in found if difference), "")
