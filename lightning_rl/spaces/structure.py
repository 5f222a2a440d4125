"""Walks nested spaces and values; only this file defines the order of leaves.

Nested values are dicts, tuples or nested batches; "leaf" means a part that is neither Dict nor Tuple.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymnasium import Space, spaces

__all__ = ["children", "leaf_spaces", "leaf_values", "pack_leaves"]


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
    # Batches store tuples under the names "0", "1", …
    by_position = isinstance(space, spaces.Tuple) and isinstance(value, tuple | list)
    found: list[Any] = []
    for position, (name, child) in enumerate(children(space)):
        key: Any = position if by_position else name
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
