"""How the size of a TD error becomes the probability of a draw: by itself, or by its rank among all.

Both give the leaves of a sum tree, for rows that are new and for rows whose error has been computed anew.
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

STALE = 0.25  # share of the rows whose error has changed, from which on they are sorted again


class Proportional:
    """P(i) ∝ (|δᵢ| + ε)^α. Schaul et al. 2016, arXiv:1511.05952, eq. 1 and section 3.3.

    Args:
        alpha: 0 makes draws uniform, 1 proportional to the error.
        eps: what keeps rows without error in the draws, in units of it.

    Attributes:
        largest: |δ| + ε of the largest error ever given; at first 1.
    """

    def __init__(self, alpha: float, eps: float) -> None:
        self.alpha, self.eps, self.largest = alpha, eps, 1.0

    def new(self, tree: SumTree, slots: Ints) -> None:
        """Rows whose error nobody knows get the largest one, so that each is soon seen."""
        tree.put(slots, self.largest**self.alpha)

    def update(self, tree: SumTree, slots: Ints, errors: Floats) -> None:
        """Rows have these |δ|, `[N]`."""
        sizes = errors + self.eps
        self.largest = max(self.largest, float(sizes.max()))
        tree.put(slots, sizes**self.alpha)

    def forget(self, tree: SumTree, slots: Ints) -> None:
        """Rows are gone."""
        tree.put(slots, 0.0)

    def state_dict(self) -> dict[str, Any]:
        """What the leaves do not tell."""
        return {"largest": self.largest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        self.largest = float(state["largest"])


class Ranked:
    """P(i) ∝ (1 / rank(i))^α, where rank 1 has the largest |δ|: outliers weigh no more than their place.

    Schaul et al. 2016, arXiv:1511.05952, section 3.3. Ranks are exact when rows are sorted, which happens when a
    quarter of them has changed; in between, an error gets the rank that it would have had then, and new rows, all of
    which share the largest error, take ranks one after the other.

    Args:
        alpha: 0 makes draws uniform.
        size: slots.
    """

    def __init__(self, alpha: float, size: int) -> None:
        self.alpha = alpha
        self.errors = np.full(size, -1.0)  # |δ| of each slot; infinite while nobody knows it, −1 where no row is
        self.sorted = np.zeros(0)  # the errors when they were last sorted, rising
        self.unseen = self.changed = 0  # since then: new rows, and rows of which anything changed

    def new(self, tree: SumTree, slots: Ints) -> None:
        """Rows whose error nobody knows come first, one behind the other."""
        self.errors[slots] = np.inf
        self._give_ranks(tree, slots, self.unseen + np.arange(1.0, len(slots) + 1))
        self.unseen += len(slots)

    def update(self, tree: SumTree, slots: Ints, errors: Floats) -> None:
        """Rows have these |δ|, `[N]`."""
        self.errors[slots] = errors
        ranks = len(self.sorted) + 1.0 - self.sorted.searchsorted(errors, side="right")
        self._give_ranks(tree, slots, ranks)

    def forget(self, tree: SumTree, slots: Ints) -> None:
        """Rows are gone."""
        self.errors[slots] = -1.0
        tree.put(slots, 0.0)

    def _give_ranks(self, tree: SumTree, slots: Ints, ranks: Floats) -> None:
        tree.put(slots, ranks**-self.alpha)
        self.changed += len(slots)
        if self.changed >= STALE * len(self.sorted):
            self.sort(tree)

    def sort(self, tree: SumTree) -> None:
        """Give every row its true rank."""
        slots = np.flatnonzero(self.errors >= 0.0)
        slots = slots[np.argsort(self.errors[slots], kind="stable")]
        self.sorted = self.errors[slots]
        self.unseen = self.changed = 0
        tree.put(slots, np.arange(len(slots), 0.0, -1.0) ** -self.alpha)

    def state_dict(self) -> dict[str, Any]:
        """What the leaves do not tell."""
        return {
            "errors": torch.from_numpy(self.errors.copy()),
            "sorted": torch.from_numpy(self.sorted.copy()),
            "unseen": self.unseen,
            "changed": self.changed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        self.errors[:] = state["errors"].numpy()
        self.sorted = state["sorted"].numpy().copy()
        self.unseen, self.changed = int(state["unseen"]), int(state["changed"])
