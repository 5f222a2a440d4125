"""Priorities for prioritized replay: from the size of a TD error (proportional), or from its rank.

Both write the leaves of a sum tree, for new rows and for rows with a newly computed error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lightning_rl.replay.sum_tree import SumTree

__all__ = ["Proportional", "Ranked"]

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]

STALE = 0.25  # share of rows with changed errors after which all are sorted again


class Proportional:
    """P(i) ∝ (|δᵢ| + ε)^α. Schaul et al. 2016, arXiv:1511.05952, eq. 1 and section 3.3.

    Args:
        alpha: 0 makes draws uniform, 1 proportional to the error.
        eps: added to every error, > 0, so that rows without error are drawn as well.

    Attributes:
        largest: |δ| + ε of the largest error ever given; at first 1.
    """

    def __init__(self, alpha: float, eps: float) -> None:
        self.alpha, self.eps, self.largest = alpha, eps, 1.0

    def new(self, tree: SumTree, slots: Ints) -> None:
        """Give new rows, whose errors are unknown, the largest priority, so that each is soon drawn."""
        tree.put(slots, self.largest**self.alpha)

    def update(self, tree: SumTree, slots: Ints, errors: Floats) -> None:
        """Set the priorities of rows from their |δ|, `[N]`."""
        sizes = errors + self.eps
        self.largest = max(self.largest, float(sizes.max()))
        tree.put(slots, sizes**self.alpha)

    def forget(self, tree: SumTree, slots: Ints) -> None:
        """Remove rows."""
        tree.put(slots, 0.0)

    def state_dict(self) -> dict[str, Any]:
        """State that does not follow from the leaves."""
        return {"largest": self.largest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        self.largest = float(state["largest"])


class Ranked:
    """P(i) ∝ (1 / rank(i))^α, where rank 1 has the largest |δ|: outliers have bounded weight.

    Schaul et al. 2016, arXiv:1511.05952, section 3.3. Ranks are exact after sorting, which happens when a quarter of
    the rows has changed; in between, an error gets the rank that it would have had at the last sort, and new rows,
    which all have the largest error, take the first ranks one after the other.

    Args:
        alpha: 0 makes draws uniform.
        size: number of slots.
    """

    def __init__(self, alpha: float, size: int) -> None:
        self.alpha = alpha
        self.errors = np.full(size, -1.0)  # |δ| of each slot; infinite if unknown, −1 if empty
        self.sorted = np.zeros(0)  # the errors at the last sort, ascending
        self.unseen = self.changed = 0  # numbers of new rows and of changed rows since the last sort

    def new(self, tree: SumTree, slots: Ints) -> None:
        """Give new rows, whose errors are unknown, the first ranks."""
        self.errors[slots] = np.inf
        self._give_ranks(tree, slots, self.unseen + np.arange(1.0, len(slots) + 1))
        self.unseen += len(slots)

    def update(self, tree: SumTree, slots: Ints, errors: Floats) -> None:
        """Set the priorities of rows from their |δ|, `[N]`."""
        self.errors[slots] = errors
        ranks = len(self.sorted) + 1.0 - self.sorted.searchsorted(errors, side="right")
        self._give_ranks(tree, slots, ranks)

    def forget(self, tree: SumTree, slots: Ints) -> None:
        """Remove rows."""
        self.errors[slots] = -1.0
        tree.put(slots, 0.0)

    def _give_ranks(self, tree: SumTree, slots: Ints, ranks: Floats) -> None:
        tree.put(slots, ranks**-self.alpha)
        self.changed += len(slots)
        if self.changed >= STALE * len(self.sorted):
            self.sort(tree)

    def sort(self, tree: SumTree) -> None:
        """Give every row its exact rank."""
        slots = np.flatnonzero(self.errors >= 0.0)
        slots = slots[np.argsort(self.errors[slots], kind="stable")]
        self.sorted = self.errors[slots]
        self.unseen = self.changed = 0
        tree.put(slots, np.arange(len(slots), 0.0, -1.0) ** -self.alpha)

    def state_dict(self) -> dict[str, Any]:
        """State that does not follow from the leaves."""
        return {
            "errors": torch.from_numpy(self.errors.copy()),
            "sorted": torch.from_numpy(self.sorted.copy()),
            "unseen": self.unseen,
            "changed": self.changed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        self.errors[:] = state["errors"].numpy()
        self.sorted = state["sorted"].numpy().copy()
        self.unseen, self.changed = int(state["unseen"]), int(state["changed"])
