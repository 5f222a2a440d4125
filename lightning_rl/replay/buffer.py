"""A replay buffer: stores whole fragments, and samples transitions uniformly.

Transitions are assembled when they are sampled: the next observation is in the next slot of the ring (`ring.py`),
n-step returns are summed and frames are stacked at that time. Nothing is stored twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_rl.errors import CheckpointError, ConfigError
from lightning_rl.replay.fragment_arrays import NEEDED, FragmentArrays
from lightning_rl.replay.ring import SAMPLEABLE, Ring
from lightning_rl.replay.storage import Allocator
from lightning_rl.replay.transitions import OF_STEPS, transitions
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Count, Probability
from lightning_rl.schema.signatures import check_keywords

__all__ = ["COLUMNS", "REPLAY_COLUMNS", "ReplayBuffer", "uniform"]

REPLAY_COLUMNS = (*NEEDED, "action_mask", "priorities", "intrinsic_rewards")
"""Columns of a fragment that are stored, if it has them."""
COLUMNS = (*REPLAY_COLUMNS, *OF_STEPS)


class ReplayBuffer:
    """A ring buffer of transitions with uniform sampling.

    Fragments `[T, B, …]` come from one worker set: always the same environments in the same order. If a fragment does
    not continue the one before it, because environments were reset in between, the buffer detects that.

    Args:
        capacity: rows, ≥ 1; the oldest are overwritten.
        n_step: number of rewards in an n-step return, ≥ 1, before it bootstraps from a value.
        gamma: discount per environment step, in [0, 1].
        storage: "memory", or a directory for files on its disk (`storage.py`).
        columns: columns of a fragment to store and to return with every sample; rows with n-step returns have those of
            `OF_STEPS` that are listed here, and all have "next_actions" if it is.
        stack_frames: whether to store each frame of stacked images once, if the first fragment holds such stacks (uint8
            images only); else whole images.
        seed: seed of samples without a generator.
        parts: number of buffers of this size that share the memory or the disk.

    Attributes:
        env_steps: environment steps so far, which draws by priority read; `None`: the number of rows ever added.

    Raises:
        ConfigError: a number is out of range.
    """

    @check_keywords("data")
    def __init__(
        self,
        capacity: Count,
        *,
        n_step: Count = 1,
        gamma: Probability = 0.99,
        storage: str = "memory",
        columns: Sequence[str] = COLUMNS,
        stack_frames: bool = True,
        seed: int = 0,
        parts: int = 1,
    ) -> None:
        self.capacity, self.n_step, self.gamma, self.stack_frames = capacity, n_step, gamma, stack_frames
        self.columns = tuple(dict.fromkeys((*NEEDED, *columns)))
        of_steps = (*OF_STEPS, "next_actions") if n_step > 1 else ("next_actions",)
        self._of_steps = tuple(name for name in of_steps if name in self.columns)
        self.allocate = Allocator(storage, capacity * parts, parts)
        self.ring: Ring | None = None
        self.added = 0  # rows ever added
        self.env_steps: int | None = None
        self._generator = np.random.default_rng(seed)
        self._powers = gamma ** np.arange(n_step + 1)

    # -- content ------------------------------------------------------------------------------------------------
    def __len__(self) -> int:
        """Number of rows that can be sampled."""
        return 0 if self.ring is None else self.ring.rows

    @property
    def nbytes(self) -> int:
        """Bytes of all columns and of the bookkeeping."""
        return 0 if self.ring is None else self.ring.columns.nbytes + self.ring.flags.nbytes

    @property
    def slots(self) -> int:
        """Number of slots for rows, a few more than `capacity`; 0 before the first fragment."""
        return 0 if self.ring is None else self.ring.slots

    def stats(self) -> dict[str, float]:
        """Numbers for logging: rows that can be sampled, rows ever added, bytes."""
        return {"rows": float(len(self)), "added": float(self.added), "bytes": float(self.nbytes)}

    # -- adding -------------------------------------------------------------------------------------------------------
    def add(self, fragment: SampleBatch) -> None:
        """Store the steps of a rollout fragment.

        Raises:
            ConfigError: it is not a fragment, has other environments, columns, shapes or types than the first one had,
                or images that stopped being stacks of frames; or the buffer does not fit into the memory or disk.
        """
        steps = FragmentArrays.from_fragment(fragment, self.columns)
        if self.ring is None:
            self.ring = Ring.for_fragment(steps, self.capacity, self.allocate, self.stack_frames)
        ring = self.ring
        steps = ring.accept(steps)
        for start in range(0, len(steps.valid), ring.longest):
            vanished, appeared = self._drawable_changes(*ring.add(steps.slice(start, start + ring.longest)))
            if len(vanished):
                self._on_undrawable(vanished)
            if len(appeared):
                self._on_drawable(appeared)
        self.added += int(np.count_nonzero(steps.valid))

    def mark_discontinuity(self) -> None:
        """Declare that the next fragment does not continue the last one, even if its observations look like it."""
        if self.ring is not None:
            self.ring.mark_discontinuity()

    def _drawable_changes(self, vanished: np.ndarray, appeared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Hook: slots that can no longer be drawn, and slots that can be from now on, given the rows that changed."""
        return vanished, appeared

    def _on_drawable(self, slots: np.ndarray) -> None:
        """Hook: these slots (int64 `[K]`, without repeats) can be drawn from now on."""

    def _on_undrawable(self, slots: np.ndarray) -> None:
        """Hook: these slots can no longer be drawn. Comes before `_on_drawable` of the rows that replace them."""

    # -- drawing ------------------------------------------------------------------------------------------------------
    def sample(self, batch_size: int, generator: np.random.Generator | None = None) -> SampleBatch:
        """Sample rows uniformly, with replacement.

        They have "obs", "actions", "rewards" (Σ γⁱ rᵢ over `n_step` rows, fewer before an episode's end or the newest
        row), "next_obs" (after the last of these), "terminated" (whether the episode terminated there), "discounts" (γ
        to the number of rows summed), "batch_indexes" (for `rows`), "next_action_mask" if masks are recorded,
        "intrinsic_rewards" (summed like rewards) if the exploration strategy adds them, `OF_STEPS`, and the other
        columns as recorded.

        Args:
            batch_size: number of rows, ≥ 1.
            generator: source of randomness; `None`: the buffer's own.

        Raises:
            ConfigError: fewer rows are stored.
        """
        if not 0 < batch_size <= len(self):
            raise ConfigError(
                f"cannot draw {batch_size} from a replay buffer that has {len(self)} rows of {self.capacity}: collect "
                "more first (data.learning_starts), raise data.capacity, or lower data.batch_size"
            )
        slots, weights = self._draw(batch_size, self._generator if generator is None else generator)
        batch = self._transitions(slots)
        if weights is not None:
            batch["weights"] = torch.from_numpy(weights)
        return batch

    def rows(self, indexes: Tensor | np.ndarray) -> SampleBatch:
        """The same as `sample`, for rows with given "batch_indexes" of earlier samples.

        Raises:
            ValueError: one of them has been overwritten.
        """
        slots, current = self._ring().locate(np.asarray(indexes))
        if not current.all():
            gone = np.asarray(indexes)[~current]
            raise ValueError(f"{len(gone)} of these rows are overwritten, such as {gone[0]}: ask only for stored ones")
        return self._transitions(slots)

    def _draw(self, batch_size: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray | None]:
        """Hook: slots to return (int64 `[N]`), and importance weights (float32) or `None`; here uniform, no weights."""
        return uniform(*self._drawable(), batch_size, generator), None

    def _drawable(self) -> tuple[np.ndarray, int, int]:
        """Hook: flags by slot (uint8), the least flag of a slot that can be drawn, and the number of such slots."""
        ring = self._ring()
        return ring.flags[: ring.limit], SAMPLEABLE, ring.rows

    def _transitions(self, slots: np.ndarray) -> SampleBatch:
        """Hook: the training batch for drawn slots."""
        return transitions(self._ring(), slots, self._powers, self._of_steps)

    # -- saving -------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Everything that is stored, as plain containers and tensors that share the buffer's memory.

        As with a module's, the state has to be written to a file before the buffer changes again.
        """
        ring = None if self.ring is None else self.ring.state_dict()
        generator = json.dumps(self._generator.bit_generator.state)
        return {"capacity": self.capacity, "added": self.added, "generator": generator, "ring": ring}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state`: later samples equal those of the saved buffer.

        Raises:
            CheckpointError: the state is from a buffer of another size or with other columns; names both.
        """
        if state["capacity"] != self.capacity:
            raise CheckpointError(
                f"the checkpoint's replay buffer has capacity={state['capacity']}, this one {self.capacity}: "
                "set data.capacity to the former, or start without the buffer"
            )
        if state["ring"] is not None:
            # Without `parts`: other buffers may have taken their share already.
            allocate = Allocator(self.allocate.storage, self.capacity)
            self.ring = Ring.from_state(state["ring"], allocate, self.ring)
        self.added = int(state["added"])
        self._generator.bit_generator.state = json.loads(state["generator"])

    def _ring(self) -> Ring:
        if self.ring is None:
            raise ConfigError("the replay buffer is empty: add a fragment first")
        return self.ring


def uniform(flags: np.ndarray, least: int, count: int, batch_size: int, generator: np.random.Generator) -> np.ndarray:
    """Draw indices uniformly from those with `flags ≥ least`, with replacement.

    Indices drawn over all entries and filtered by their flag are uniform over the hits; most entries are hits.

    Args:
        flags: uint8 `[M]`.
        least: least flag of a hit.
        count: number of hits, ≥ 1.
        batch_size: number of indices.
        generator: source of randomness.
    """
    places = (generator.random(batch_size) * len(flags)).astype(np.int64)  # half the time of `integers`
    found = flags.take(places)
    if found.min() >= least:
        return places
    places = places[found >= least]
    while len(places) < batch_size:
        more = generator.integers(0, len(flags), (batch_size - len(places)) * len(flags) // count + 8)
        places = np.concatenate((places, more[flags.take(more) >= least]))
    return places[:batch_size]
