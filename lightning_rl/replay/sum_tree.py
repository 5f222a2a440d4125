"""Samples indices in proportion to priorities: a tree whose leaves are priorities and whose nodes are sums.

The tree is wide and flat, because the cost of a sample is the number of array operations, not of additions: a million
leaves need 3907 sums over 16 × 16. A node is always recomputed from its children and never corrected by a difference,
so rounding does not accumulate: after any updates the tree is bit-equal to `rebuild`. Nodes are computed when they are
needed, so that updates between two samples share the work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["SumTree"]

Floats = NDArray[np.floating[Any]]  # always float64
Ints = NDArray[np.int64]

TOP = 4096  # number of sums that is as fast to add up as one more level is to search
WIDEST, LEAST = 32, 8  # bounds for the children of a node: more cost more than another level, fewer do not cost less
MANY = 1024  # number of updates from which deduplicating nodes pays off
MOST = 65536  # limit for updates without recomputation


class SumTree:
    """A sum tree with `size` leaves ≥ 0, initially all 0.

    Schaul et al. 2016, arXiv:1511.05952, appendix B.2.1, with more than two children per node.

    Args:
        size: number of leaves, ≥ 1.
        fanout: children of a node, ≥ 2; `None`: chosen for few levels.
    """

    def __init__(self, size: int, fanout: int | None = None) -> None:
        self.size, self.fanout = size, fanout or good_fanout(size)
        # Levels bottom up, each padded with zeros to whole rows: entry j of a level is the sum of row j below it.
        self.levels: list[Floats] = []
        count = size
        while not self.levels or count > TOP:
            count = -(-count // self.fanout)
            self.levels.append(np.zeros((count, self.fanout)))
        self.top: Floats = np.zeros(count)
        self._sums_before = np.zeros(count + 1)  # cumulative sums over the top level
        self._tensors = torch.from_numpy(self.top), torch.from_numpy(self._sums_before)[1:]
        self._flat = [level.reshape(-1) for level in (*self.levels, self.top)]
        self._changed: list[Ints] = []  # rows of leaves with outdated sums
        self._waiting = 0

    @property
    def leaves(self) -> Floats:
        """All leaves, `[size]`, as a read-only view."""
        return self._flat[0][: self.size]

    @property
    def total(self) -> float:
        """Sum of all leaves."""
        self.settle()
        return float(self._sums_before[-1])

    def get(self, indexes: Ints) -> Floats:
        """Leaves `indexes`, `[N]`."""
        return self._flat[0].take(indexes)

    def put(self, indexes: Ints, values: Floats | float) -> None:
        """Set leaves `indexes [N]` to `values [N]`, or to one number; if an index repeats, its last value counts."""
        self._flat[0][indexes] = values
        self._changed.append(indexes // self.fanout)
        self._waiting += len(indexes)
        if self._waiting > MOST:
            self.settle()

    def settle(self) -> None:
        """Recompute the nodes above changed leaves."""
        if not self._changed:
            return
        rows = self._changed[0] if len(self._changed) == 1 else np.concatenate(self._changed)
        self._changed, self._waiting = [], 0
        for level, above in zip(self.levels, self._flat[1:], strict=True):
            if len(rows) > MANY:
                rows = np.unique(rows)
            above[rows] = row_sums(level.take(rows, axis=0))
            rows = rows // self.fanout
        top, sums = self._tensors
        torch.cumsum(top, 0, out=sums)

    def find(self, masses: Floats) -> Ints:
        """For each mass `m` the leaf `i` with `leaves[:i].sum() ≤ m < leaves[:i + 1].sum()`; never a leaf of 0.

        Args:
            masses: `[N]`, in `[0, total)`; values outside find the first or the last leaf above 0. Fastest if
                ascending, because memory is then read in order.
        """
        masses = np.minimum(masses, math.nextafter(self.total, 0.0))
        np.maximum(masses, 0.0, out=masses)
        found = self._sums_before[1:].searchsorted(masses, side="right")
        masses -= self._sums_before.take(found)
        for level in reversed(self.levels):
            children = level.take(found, axis=0)
            sums = cumulative(children)
            beyond = sums > masses[:, None]
            child = beyond.argmax(1)
            if not beyond[:, -1].all():
                # Rounding made the mass as large as its node: take the node's last child above 0.
                child = np.where(beyond[:, -1], child, (sums == sums[:, -1:]).argmax(1))
            found = found * self.fanout + child
            if level is not self.levels[0]:
                picked = np.arange(0, children.size, self.fanout) + child
                masses -= sums.reshape(-1).take(picked)
                masses += children.reshape(-1).take(picked)
                np.maximum(masses, 0.0, out=masses)  # a mass below 0 by rounding would find leaves of 0
        return found

    def rebuild(self) -> None:
        """Recompute every node from the leaves; the result is bit-equal to that of the updates."""
        self._changed = [np.arange(len(self.levels[0]))]
        self.settle()

    def state_dict(self) -> dict[str, Any]:
        """The leaves, float64 `[size]`, which determine everything else."""
        return {"leaves": torch.from_numpy(self.leaves.copy())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the tree from `state`, which has as many leaves."""
        self.leaves[:] = state["leaves"].numpy()
        self.rebuild()


def good_fanout(size: int) -> int:
    """Number of children per node that gives few levels without too wide nodes."""
    levels = 1
    while size > TOP * WIDEST**levels:
        levels += 1
    return max(LEAST, math.ceil((size / TOP) ** (1 / levels) - 1e-9))


def row_sums(rows: Floats) -> Floats:
    """Sum of each row `[n, fanout]`, in an order of additions that does not depend on the row's position."""
    return np.einsum("ij->i", rows)  # half the time of `sum`


def cumulative(rows: Floats) -> Floats:
    """Cumulative sums along each row `[n, fanout]`, from left to right; they never decrease, even by rounding."""
    return torch.from_numpy(rows).cumsum(1).numpy()  # equals np.cumsum, in a tenth of the time
