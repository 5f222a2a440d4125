"""Typed columns of a replay ring, nested like the fragments: one array per leaf, with the dtype of the data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_rl.replay.frames import FramesColumn, Stack
from lightning_rl.replay.storage import Allocate, Allocator
from lightning_rl.sample_batch import SampleBatch

__all__ = ["Column", "Columns", "Layout", "Path", "WholeColumn", "leaves_of"]

Path = tuple[str, ...]


class WholeColumn:
    """A column that stores every row, `[slots, *shape]`; row `r` of environment `b` is in slot `r·B + b`."""

    history = 0

    def __init__(self, slots: int, num_envs: int, shape: tuple[int, ...], dtype: Any, allocate: Allocate) -> None:
        self.array = allocate((slots, *shape), dtype)
        self.num_envs, self.shape, self.dtype = num_envs, shape, np.dtype(dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the column."""
        return self.array.nbytes

    def write(self, slots: np.ndarray | slice, values: np.ndarray, source: np.ndarray | slice) -> None:
        """Copy rows `source` of `values [M, *shape]` into `slots`."""
        self.array[slots] = values[source]

    def read(self, slots: np.ndarray) -> np.ndarray:
        """Rows of `slots [N]`, `[N, *shape]`."""
        return self.array.take(slots, axis=0, mode="wrap")  # slots are in range; "wrap" avoids a check and a copy

    def read_pair(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of `slots` and the rows after them."""
        both = self.array.take(np.concatenate((slots, slots + self.num_envs)), axis=0, mode="wrap")
        return both[: len(slots)], both[len(slots) :]


Column = WholeColumn | FramesColumn


@dataclass(frozen=True, slots=True)
class Layout:
    """Describes one leaf of a ring: its name, shape, dtype and frame stack.

    Args:
        path: names that lead to it: ("obs",), or ("obs", "image") in a Dict space.
        shape, dtype: of one row.
        stack: how rows consist of frames; `None`: rows are stored whole.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: str
    stack: Stack | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize // (1 if self.stack is None else self.stack.frames)

    def __str__(self) -> str:
        return f"{'.'.join(self.path)} {self.dtype}{list(self.shape)}"


class Columns:
    """The columns of one ring.

    Args:
        layouts: of all leaves.
        length: rows per environment, `R`.
        num_envs: `B`.
        allocate: creates the arrays.

    Raises:
        ConfigError: the arrays do not fit.
    """

    def __init__(self, layouts: Sequence[Layout], length: int, num_envs: int, allocate: Allocator) -> None:
        self.slots, self.num_envs, self.allocate = length * num_envs, num_envs, allocate
        allocate.check(self.slots * sum(layout.nbytes for layout in layouts))
        self.leaves: dict[Path, Column] = {}
        self._tree: dict[str, Any] = {}
        for layout in layouts:
            self._put(layout)

    def __contains__(self, name: object) -> bool:
        return name in self._tree

    def __iter__(self) -> Iterator[str]:
        return iter(self._tree)

    @property
    def frames(self) -> dict[Path, FramesColumn]:
        """The columns of stacked images."""
        return {path: column for path, column in self.leaves.items() if isinstance(column, FramesColumn)}

    @property
    def history(self) -> int:
        """Number of slots before its own that a row needs."""
        return max(column.history for column in self.leaves.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(column.array.nbytes for column in self.leaves.values())

    def layouts(self) -> list[Layout]:
        """Layouts of the columns, for creating equal ones."""
        return [
            Layout(path, column.shape, column.dtype.name, getattr(column, "stack", None))
            for path, column in self.leaves.items()
        ]

    def array(self, name: str) -> np.ndarray:
        """The array `[slots, *shape]` of an unnested column that is stored whole."""
        return self._tree[name].array

    def read(self, name: str, slots: np.ndarray) -> Any:
        """Rows of `slots` as tensors `[N, *]`, with the nesting of the column."""
        return _read(self._tree[name], slots)

    def read_pair(self, name: str, slots: np.ndarray) -> tuple[Any, Any]:
        """Rows of `slots` and the rows after them in their environments."""
        return _read_pair(self._tree[name], slots)

    def keep_whole(self, path: Path, filled: int) -> None:
        """Store whole images in a column that was assumed to hold frame stacks, as long as no row relies on that.

        Args:
            path: of a column of frames.
            filled: slots from the first that may hold rows.

        Raises:
            ConfigError: whole images do not fit.
        """
        frames = self.leaves[path]
        whole = Layout(path, frames.shape, frames.dtype.name)
        self.allocate.check(self.slots * whole.nbytes)
        self._put(whole)
        for start in range(0, filled, 1024):
            slots = np.arange(start, min(start + 1024, filled))
            self.leaves[path].array[slots] = frames.read(slots)

    def add(self, layout: Layout) -> None:
        """Add a column of zeros.

        Raises:
            ConfigError: it does not fit.
        """
        self.allocate.check(self.slots * layout.nbytes)
        self._put(layout)

    def _put(self, layout: Layout) -> None:
        if layout.stack is None:
            column: Column = WholeColumn(self.slots, self.num_envs, layout.shape, layout.dtype, self.allocate)
        else:
            column = FramesColumn(self.slots, self.num_envs, layout.stack, layout.dtype, self.allocate)
        self.leaves[layout.path] = column
        node = self._tree
        for name in layout.path[:-1]:
            node = node.setdefault(name, {})
        node[layout.path[-1]] = column


def leaves_of(batch: SampleBatch, names: Iterable[str]) -> dict[Path, np.ndarray]:
    """Arrays of the named columns that a batch has; nested columns as one array per leaf."""
    found: dict[Path, np.ndarray] = {}
    for name in names:
        if name in batch:
            _collect(found, (name,), batch[name])
    return found


def _collect(found: dict[Path, np.ndarray], path: Path, value: Any) -> None:
    if isinstance(value, SampleBatch):
        for name, child in value.items():
            _collect(found, (*path, name), child)
    else:
        found[path] = value.numpy() if isinstance(value, Tensor) else np.asarray(value)


def _read(node: Any, slots: np.ndarray) -> Any:
    if isinstance(node, dict):
        return SampleBatch({name: _read(child, slots) for name, child in node.items()})
    return torch.from_numpy(node.read(slots))


def _read_pair(node: Any, slots: np.ndarray) -> tuple[Any, Any]:
    if isinstance(node, dict):
        pairs = {name: _read_pair(child, slots) for name, child in node.items()}
        first, second = ({name: pair[side] for name, pair in pairs.items()} for side in (0, 1))
        return SampleBatch(first), SampleBatch(second)
    first, second = node.read_pair(slots)
    return torch.from_numpy(first), torch.from_numpy(second)
