"""Reservoir sampling: a uniform sample of all transitions ever added, instead of the newest ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.replay.columns import Columns, Layout, leaves_of
from lightning_rl.replay.fragment_arrays import FragmentArrays
from lightning_rl.replay.ring import Ring
from lightning_rl.replay.transitions import run_lengths
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.seeding import derive_seed

__all__ = ["ReservoirReplayBuffer"]

STAGE = 64  # rows per environment in the ring


class ReservoirReplayBuffer(ReplayBuffer):
    """Keeps each transition ever added with the same probability. Vitter 1985, doi:10.1145/3147.3165, algorithm R.

    Rows pass through a short ring, where their n-step return is completed, and are then kept one by one. The row after
    a kept row is soon overwritten, so its observation is stored too: an observation costs twice the memory of a ring's,
    and stacked images are stored whole. The rows that are kept depend only on `seed` and on the order of rows.

    "batch_indexes" are the rows' numbers in the order in which they were added.

    Args:
        capacity: rows.
        seed, keywords: as `ReplayBuffer`.
    """

    def __init__(self, capacity: int, *, seed: int = 0, **keywords: Any) -> None:
        super().__init__(capacity, seed=seed, **{**keywords, "obs_frames": 0})
        self.seed = seed
        self.seen = 0  # number of rows offered so far
        self._kept: Columns | None = None
        self._numbers = np.zeros(capacity, np.int64)  # numbers of the kept rows
        self._waiting = np.zeros(0, np.int64)  # slots of the ring whose n-step return may grow

    def __len__(self) -> int:
        """Number of kept rows."""
        return min(self.seen, self.capacity)

    @property
    def nbytes(self) -> int:
        """Bytes of the kept rows and of the ring."""
        return super().nbytes + self._numbers.nbytes + (0 if self._kept is None else self._kept.nbytes)

    def rows(self, indexes: Tensor | np.ndarray) -> SampleBatch:
        """The same as `sample`, for rows with given "batch_indexes" of earlier samples.

        Raises:
            ValueError: a row was replaced since.
        """
        wanted = np.asarray(indexes)
        order = np.argsort(self._numbers[: len(self)])
        places = order[np.searchsorted(self._numbers[: len(self)], wanted, sorter=order).clip(max=len(self) - 1)]
        gone = wanted[self._numbers[places] != wanted]
        if len(gone):
            raise ValueError(f"{len(gone)} of these rows are not kept, such as {gone[0]}: ask only for stored ones")
        return self._transitions(places)

    # -- from the ring into the reservoir -----------------------------------------------------------------------------
    def _new_ring(self, steps: FragmentArrays) -> Ring:
        return Ring.for_fragment(steps, 2 * (STAGE + self.n_step) * steps.num_envs, self.allocate, 0)

    def _on_undrawable(self, slots: np.ndarray) -> None:
        self._waiting = self._waiting[~np.isin(self._waiting, slots)]

    def _on_drawable(self, slots: np.ndarray) -> None:
        ring = self._ring()
        waiting = np.concatenate((self._waiting, slots))
        complete = run_lengths(ring, waiting, self.n_step)[1]
        self._waiting, complete = waiting[~complete], waiting[complete]
        if len(complete):
            batch = super()._transitions(complete)
            self._keep(leaves_of(batch, [name for name in batch if name != "batch_indexes"]), len(complete))

    def _keep(self, leaves: Mapping[tuple[str, ...], np.ndarray], count: int) -> None:
        """Keep a row while there is room, and row number i with probability capacity / (i + 1) after that."""
        if self._kept is None:
            layouts = [Layout(path, leaf.shape[1:], leaf.dtype) for path, leaf in leaves.items()]
            self._kept = Columns(layouts, self.capacity, 1, self.allocate)
        for path in leaves.keys() - self._kept.leaves.keys():  # the first masks: what was kept allowed everything
            self._kept.add(Layout(path, leaves[path].shape[1:], np.dtype(bool)))
            self._kept.array(path[0])[: len(self)] = True
        numbers = np.arange(self.seen, self.seen + count)
        generator = np.random.default_rng(derive_seed(self.seed, "replay", 0, 0, 0, self.seen))
        places = np.where(numbers < self.capacity, numbers, generator.integers(0, numbers + 1))
        source = np.flatnonzero(places < self.capacity)
        places = places[source]
        for path, leaf in leaves.items():
            self._kept.leaves[path].write(places, leaf, source)
        self._numbers[places] = numbers[source]
        self.seen += count

    # -- drawing ------------------------------------------------------------------------------------------------------
    def _draw(self, batch_size: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray | None]:
        return generator.integers(0, len(self), batch_size), None

    def _transitions(self, slots: np.ndarray) -> SampleBatch:
        assert self._kept is not None
        batch = SampleBatch({name: self._kept.read(name, slots) for name in self._kept})
        batch["batch_indexes"] = torch.from_numpy(self._numbers[slots])
        return batch

    # -- saving -------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """The state of the ring, and the kept rows; tensors share the buffer's memory."""
        kept = None if self._kept is None else self._kept.state_dict(len(self))
        numbers = {"seen": self.seen, "numbers": torch.from_numpy(self._numbers[: len(self)]), "kept": kept}
        return {**super().state_dict(), "reservoir": {**numbers, "waiting": torch.from_numpy(self._waiting)}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state`: later samples and later decisions to keep rows equal those of the saved buffer.

        Raises:
            CheckpointError: as `ReplayBuffer`.
        """
        super().load_state_dict(state)
        saved = state["reservoir"]
        self.seen, self._waiting = saved["seen"], saved["waiting"].numpy().copy()
        self._numbers[: len(self)] = saved["numbers"].numpy()
        if saved["kept"] is not None:
            self._kept = Columns.from_state(saved["kept"], self.capacity, 1, self.allocate)
