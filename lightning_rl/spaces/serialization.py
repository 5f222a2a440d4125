"""Converts spaces to plain data for checkpoints and back, and describes where two spaces differ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.spaces.structure import children, plain_key
from lightning_rl.spaces.support import SUPPORTED, check_supported

__all__ = ["space_difference", "space_from_json", "space_to_json"]

MOST_ENTRIES = 100_000_000  # of one observation: 400 MB; larger bounds would not fit into memory


def space_to_json(space: Space[Any]) -> dict[str, Any]:
    """A space as plain dicts, lists, strings and numbers, from which `space_from_json` creates an equal space.

    Raises:
        UnsupportedSpaceError: the space has a part that the package does not support.
    """
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "spaces": [[plain_key(name), space_to_json(child)] for name, child in children(space)]}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "spaces": [space_to_json(child) for child in space.spaces]}
    check_supported(space, "observation")
    written = {"type": type(space).__name__, "shape": list(space.shape or ()), "dtype": str(space.dtype)}
    if isinstance(space, spaces.Box):
        return {**written, "low": _compact(space.low), "high": _compact(space.high)}
    if isinstance(space, spaces.Discrete):
        return {**written, "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {**written, "nvec": _compact(space.nvec), "start": _compact(space.start)}
    assert isinstance(space, spaces.MultiBinary)
    return {**written, "n": space.n if isinstance(space.n, int) else [int(size) for size in np.atleast_1d(space.n)]}


def space_from_json(written: Mapping[str, Any]) -> Space[Any]:
    """The space that `space_to_json` serialized.

    Raises:
        UnsupportedSpaceError: `written` describes no supported space.
    """
    kind = written.get("type")
    if kind == "Dict":  # pairs, so that the order of keys is kept
        return spaces.Dict([(name, space_from_json(child)) for name, child in written["spaces"]])
    if kind == "Tuple":
        return spaces.Tuple([space_from_json(child) for child in written["spaces"]])
    if kind == "MultiBinary":
        return spaces.MultiBinary(written["n"])
    if kind not in ("Box", "Discrete", "MultiDiscrete"):
        raise UnsupportedSpaceError(f"written-down space has type {kind!r}; supported are {SUPPORTED}")
    shape, dtype = tuple(written["shape"]), np.dtype(written["dtype"])
    if kind == "Discrete":
        # Gymnasium before 1.3 has no other dtype, and no such argument.
        other: dict[str, Any] = {} if dtype == np.int64 else {"dtype": dtype.type}
        return spaces.Discrete(written["n"], start=written["start"], **other)
    if kind == "MultiDiscrete":
        nvec, start = (_expand(written[name], shape, dtype) for name in ("nvec", "start"))
        return spaces.MultiDiscrete(nvec, dtype=dtype.type, start=start)
    return spaces.Box(_expand(written["low"], shape, dtype), _expand(written["high"], shape, dtype), shape, dtype.type)


def _compact(values: np.ndarray) -> Any:
    """A single number if all are equal (as an image's 84·84·4 bounds), else a flat list."""
    flat = values.ravel().tolist()
    return flat[0] if flat and all(value == flat[0] for value in flat) else flat


def _expand(values: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    if math.prod(shape) > MOST_ENTRIES:
        raise UnsupportedSpaceError(f"written-down space has shape {list(shape)}: more than {MOST_ENTRIES} entries")
    return np.full(shape, values, dtype) if np.isscalar(values) else np.array(values, dtype).reshape(shape)


def space_difference(first: Space[Any], second: Space[Any], path: str = "", *, bounds: bool = True) -> str | None:
    """Describe the first difference between two spaces; `None` if they are equal.

    Args:
        first, second: the spaces.
        path: the path of the parts that they are.
        bounds: whether Boxes of one shape and type with other bounds differ.
    """
    where = f"{path}: " if path else ""
    if type(first) is not type(second):
        return f"{where}{first} against {second}"
    if isinstance(first, spaces.Dict) and isinstance(second, spaces.Dict) and list(first.spaces) != list(second.spaces):
        return f"{where}keys {list(first.spaces)} against {list(second.spaces)}"
    if isinstance(first, spaces.Tuple) and isinstance(second, spaces.Tuple) and len(first.spaces) != len(second.spaces):
        return f"{where}{len(first.spaces)} parts against {len(second.spaces)}"
    if isinstance(first, spaces.Dict | spaces.Tuple) and isinstance(second, spaces.Dict | spaces.Tuple):
        for (name, ours), (_, theirs) in zip(children(first), children(second), strict=True):
            difference = space_difference(ours, theirs, f"{path}.{name}" if path else name, bounds=bounds)
            if difference:
                return difference
        return None
    if not bounds and isinstance(first, spaces.Box) and (first.shape, first.dtype) == (second.shape, second.dtype):
        return None
    return None if first == second else f"{where}{first} against {second}"
