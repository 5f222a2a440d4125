"""Draws rows in proportion to their priorities: a tree whose leaves are priorities and whose nodes are sums.

The tree is wide and flat, because what a draw costs here is the number of array operations and not that of additions:
a million leaves are 3907 sums over 16 × 16. A node is always computed anew from its children and never corrected by a
difference, so nothing drifts: after any updates the tree is what `rebuild` would make of its leaves, bit by bit. Nodes
are computed when somebody asks for them, so that updates between two draws share the work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["LARGEST", "SumTree"]

Floats = NDArray[np.floating[Any]]  # float64 always
Ints = NDArray[np.int64]

LARGEST = float(np.finfo(np.float64).max) / 2.0**64
"""The largest value a leaf takes: even 2⁶⁴ of them have a finite sum."""
TOP = 4096  # sums that are added up anew about as fast as one level more is searched
WIDEST, LEAST = 32, 8  # children of a node: more cost more than a level does, fewer cost no less
MANY = 1024  # updates from which on it pays to compute no node twice
MOST = 65536  # updates that wait for a draw


class SumTree:
    """`size` leaves ≥ 0, at first all 0.

    Schaul et al. 2016, arXiv:1511.05952, appendix B.2.1, with more than two children a node.

    Args:
        size: number of leaves, ≥ 1.
        fanout: children of a node, ≥ 2; `None`: as few as give the fewest levels.

    Raises:
        ValueError: a number is out of range.
    """

    def __init__(self, size: int, fanout: int | None = None) -> None:
        if size < 1 or (fanout is not None and fanout < 2):
            raise ValueError(f"SumTree(size={size}, fanout={fanout}); expected size ≥ 1 and fanout ≥ 2")
        self.size, self.fanout = size, fanout or good_fanout(size)
        # Bottom up, each padded with zeros to whole rows: entry j of one level is the sum of row j of the level below.
        self.levels: list[Floats] = []
        count = size
        while not self.levels or count > TOP:
            count = -(-count // self.fanout)
            self.levels.append(np.zeros((count, self.fanout)))
        self.top: Floats = np.zeros(count)
        self._sums_before = np.zeros(count + 1)  # of the top's entries before each
        self._tensors = torch.from_numpy(self.top), torch.from_numpy(self._sums_before)[1:]
        self._flat = [level.reshape(-1) for level in (*self.levels, self.top)]
        self._changed: list[Ints] = []  # rows of leaves whose sums are to be computed
        self._waiting = 0

    @property
    def leaves(self) -> Floats:
        """All leaves, `[size]`: a view, to be read only."""
        return self._flat[0][: self.size]

    @property
    def total(self) -> float:
        """Sum of all leaves."""
        self.settle()
        return float(self._sums_before[-1])

    def get(self, indexes: Ints) -> Floats:
        """Leaves `indexes`, `[N]`."""
        return self._flat[0].take(indexes)

    def set(self, indexes: Ints, values: Floats) -> None:
        """Give leaves `indexes [N]` their `values [N]`; where an index repeats, the last one counts.

        Raises:
            ValueError: a value is NaN, negative or above `LARGEST`. Nothing has changed then.
            IndexError: an index is not in `[0, size)`. Nothing has changed then.
        """
        if not len(indexes):
            return
        check_leaves(values)
        if indexes.min() < 0 or indexes.max() >= self.size:
            raise IndexError(f"leaves {indexes.min()} to {indexes.max()}; the tree has 0 to {self.size - 1}")
        self.put(indexes, values)

    def put(self, indexes: Ints, values: Floats | float) -> None:
        """`set` without its checks, for who has made them; `values` can be one for all."""
        self._flat[0][indexes] = values
        self._changed.append(indexes // self.fanout)
        self._waiting += len(indexes)
        if self._waiting > MOST:
            self.settle()

    def settle(self) -> None:
        """Compute the nodes above leaves that have changed."""
        if not self._changed:
            return
        rows = self._changed[0] if len(self._changed) == 1 else np.concatenate(self._changed)
        self._changed, self._waiting = [], 0
        for level, above in zip(self.levels, self._flat[1:], strict=True):
            if len(rows) > MANY:
                rows = np.unique(rows)
            above[rows] = row_sums(level.take(rows, axis=0))
            rows = rows // self.fanout
        self._sum_top()

    def find(self, masses: Floats) -> Ints:
        """For each mass `m` the leaf `i` with `leaves[:i].sum() ≤ m < leaves[:i + 1].sum()`; never one that is 0.

        Args:
            masses: `[N]`, in `[0, total)`; what is outside finds the first or the last leaf above 0. Fastest where
                they rise, because memory is then read in order.

        Raises:
            ValueError: all leaves are 0.
        """
        total = self.total
        if not total > 0.0:
            raise ValueError("every leaf of the tree is 0, so there is none to find: set some first")
        masses = np.minimum(masses, math.nextafter(total, 0.0))
        np.maximum(masses, 0.0, out=masses)
        found = self._sums_before[1:].searchsorted(masses, side="right")
        masses -= self._sums_before.take(found)
        for level in reversed(self.levels):
            children = level.take(found, axis=0)
            sums = cumulative(children)
            beyond = sums > masses[:, None]
            child = beyond.argmax(1)
            if not beyond[:, -1].all():
                # Rounding left a mass as large as its node: what is meant is the node's last child above 0.
                child = np.where(beyond[:, -1], child, (sums == sums[:, -1:]).argmax(1))
            found = found * self.fanout + child
            if level is not self.levels[0]:
                picked = np.arange(0, children.size, self.fanout) + child
                masses -= sums.reshape(-1).take(picked)
                masses += children.reshape(-1).take(picked)
                np.maximum(masses, 0.0, out=masses)  # below 0 by rounding, it would find leaves that are 0
        return found

    def rebuild(self) -> None:
        """Compute every node from the leaves: bit-equal to what the updates have left."""
        self._changed, self._waiting = [], 0
        for level, above in zip(self.levels, self._flat[1:], strict=True):
            above[: len(level)] = row_sums(level)
        self._sum_top()

    def state_dict(self) -> dict[str, Any]:
        """The leaves, float64 `[size]`: all else follows from them."""
        return {"leaves": torch.from_numpy(self.leaves.copy())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become the tree that gave `state`.

        Raises:
            ValueError: it has another number of leaves, or one that no tree takes.
        """
        leaves = state["leaves"].numpy()
        if leaves.shape != (self.size,):
            raise ValueError(f"the state has {len(leaves)} leaves and this tree {self.size}: make one of that size")
        check_leaves(leaves)
        self.leaves[:] = leaves
        self.rebuild()

    def _sum_top(self) -> None:
        top, sums = self._tensors
        torch.cumsum(top, 0, out=sums)


def good_fanout(size: int) -> int:
    """Children of a node, for the fewest levels that are not too wide."""
    levels = 1
    while size > TOP * WIDEST**levels:
        levels += 1
    return max(LEAST, math.ceil((size / TOP) ** (1 / levels) - 1e-9))


def row_sums(rows: Floats) -> Floats:
    """Sum of each row `[n, fanout]`, always added up in the same order, wherever the row stands."""
    return np.einsum("ij->i", rows)  # half the time of `sum`


def cumulative(rows: Floats) -> Floats:
    """Cumulative sums along each row `[n, fanout]`, added up from left to right: they never fall, even rounded."""
    return torch.from_numpy(rows).cumsum(1).numpy()  # as np.cumsum gives them, in a tenth of the time


def check_leaves(values: Floats) -> None:
    """Refuse what cannot be a leaf.

    Raises:
        ValueError: a value is NaN, negative or above `LARGEST`; names the first one.
    """
    if values.min() >= 0.0 and values.max() <= LARGEST:  # a NaN passes neither
        return
    wrong = np.flatnonzero(~((values >= 0.0) & (values <= LARGEST)))[0]
    raise ValueError(f"value {wrong} for the tree is {values[wrong]}; expected a number from 0 to {LARGEST:.1e}")
