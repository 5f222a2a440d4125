"""Typed columns of a replay ring, nested like the fragments: one array per leaf, with the dtype of the data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from lightning_rl.replay.frames import Stack
from lightning_rl.replay.storage import Allocate, Allocator
from lightning_rl.sample_batch import SampleBatch

__all__ = ["Column", "Columns", "FramesColumn", "Layout", "Path", "described", "layout_of", "leaves_of"]

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Describes one leaf of a ring: its name, shape, dtype and frame stack.

    Args:
        path: names that lead to it: ("obs",), or ("obs", "image") in a Dict space.
        shape, dtype: the shape and dtype of one row.
        stack: how rows consist of frames; `None`: rows are stored whole.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stack: Stack | None = None

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of what a slot holds: a row, or one frame of it."""
        return self.shape if self.stack is None else self.stack.frame_shape

    @property
    def nbytes(self) -> int:
        """Bytes of one slot."""
        return math.prod(self.stored_shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{'.'.join(self.path)} {self.dtype}{list(self.shape)}"


def described(num_envs: int, layouts: Iterable[Layout]) -> str:
    """What a ring stores, for messages."""
    return f"{num_envs} environments with {', '.join(map(str, layouts))}"


class Column:
    """A column that stores every row, `[slots, *shape]`; row `r` of environment `b` is in slot `r·B + b`.

    Attributes:
        array: `[slots, *layout.stored_shape]`.
        history: number of slots before its own that a row needs.
        proven: whether a stack of differing frames was ever shifted, which proves that these are stacks.
    """

    history = 0
    proven = False

    def __init__(self, layout: Layout, slots: int, num_envs: int, allocate: Allocate) -> None:
        self.layout, self.num_envs = layout, num_envs
        self.array = allocate((slots, *layout.stored_shape), layout.dtype)

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


class FramesColumn(Column):
    """A column of stacked images that stores the newest frame of each row (`frames.py`)."""

    def __init__(self, layout: Layout, slots: int, num_envs: int, allocate: Allocate) -> None:
        super().__init__(layout, slots, num_envs, allocate)
        assert layout.stack is not None
        self.stack, self.history = layout.stack, layout.stack.frames - 1
        self._back = np.arange(-self.history, 2) * num_envs  # from the oldest frame to that of the next row

    def write(self, slots: np.ndarray | slice, values: np.ndarray, source: np.ndarray | slice) -> None:
        """Copy the newest frames of rows `source` of `values [M, *shape]` into `slots`."""
        self.array[slots] = self.stack.split(values)[:, -1][source]

    def write_history(self, slots: np.ndarray, values: np.ndarray, source: np.ndarray) -> None:
        """Copy the older frames of rows `source` of `values [M, *shape]` into the slots before `slots`."""
        before = (slots[:, None] + self._back[:-2]) % len(self.array)
        self.array[before] = self.stack.split(values)[source, :-1]

    def read(self, slots: np.ndarray) -> np.ndarray:
        """Stacks of `slots [N]`, `[N, *shape]`."""
        return self.stack.join(self._frames(slots, self._back[:-1]))

    def read_pair(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Stacks of `slots` and of the rows after them; views of one array, as they share all frames but two."""
        frames = self._frames(slots, self._back)
        return self.stack.join(frames[:, :-1]), self.stack.join(frames[:, 1:])

    def _frames(self, slots: np.ndarray, back: np.ndarray) -> np.ndarray:
        return self.array.take(slots[:, None] + back, axis=0, mode="wrap")


class Columns:
    """The columns of one ring.

    Args:
        layouts: the layouts of all leaves.
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

    @property
    def layouts(self) -> list[Layout]:
        """Layouts of the columns, for creating equal ones."""
        return [column.layout for column in self.leaves.values()]

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
            path: the path of a column of frames.
            filled: slots from the first that may hold rows.

        Raises:
            ConfigError: whole images do not fit.
        """
        frames = self.leaves[path]
        self.add(replace(frames.layout, stack=None))
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
        kind = Column if layout.stack is None else FramesColumn
        column = self.leaves[layout.path] = kind(layout, self.slots, self.num_envs, self.allocate)
        node = self._tree
        for name in layout.path[:-1]:
            node = node.setdefault(name, {})
        node[layout.path[-1]] = column

    # -- saving -------------------------------------------------------------------------------------------------------
    def state_dict(self, filled: int) -> list[dict[str, Any]]:
        """The first `filled` slots as plain containers and tensors that share the columns' memory."""
        return [
            {
                "path": list(column.layout.path),
                "shape": list(column.layout.shape),
                "dtype": column.layout.dtype.name,
                "stack": None
                if column.layout.stack is None
                else [column.layout.stack.frames, column.layout.stack.last],
                "proven": column.proven,
                "rows": torch.from_numpy(column.array[:filled]),
            }
            for column in self.leaves.values()
        ]

    @classmethod
    def from_state(cls, state: Sequence[Mapping[str, Any]], length: int, num_envs: int, allocate: Allocator) -> Self:
        """Restore columns from `state_dict`; the other arguments are the constructor's.

        Raises:
            ConfigError: the arrays do not fit.
        """
        columns = cls([layout_of(saved) for saved in state], length, num_envs, allocate)
        for column, saved in zip(columns.leaves.values(), state, strict=True):
            column.array[: len(saved["rows"])] = saved["rows"].numpy()
            column.proven = saved["proven"]
        return columns


def layout_of(saved: Mapping[str, Any]) -> Layout:
    """The layout of a column in `Columns.state_dict`."""
    shape = tuple(saved["shape"])
    stack = None if saved["stack"] is None else Stack(saved["stack"][0], shape, saved["stack"][1])
    return Layout(tuple(saved["path"]), shape, np.dtype(saved["dtype"]), stack)


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
