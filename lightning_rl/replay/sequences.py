"""Replay of sequences for models with state: parts of episodes, with the recurrent state recorded before each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from lightning_rl.errors import ConfigError
from lightning_rl.replay.buffer import REPLAY_COLUMNS, ReplayBuffer
from lightning_rl.replay.prioritized import PrioritizedReplayBuffer
from lightning_rl.replay.ring import SAMPLEABLE, Ring
from lightning_rl.replay.transitions import OF_STEPS, add_columns, n_step_returns, run_lengths
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Count, Whole
from lightning_rl.schema.signatures import check_keywords

__all__ = ["SEQUENCE_COLUMNS", "PrioritizedSequenceReplayBuffer", "SequenceReplayBuffer"]

SEQUENCE_COLUMNS = (*REPLAY_COLUMNS, "state_in", "prev_obs", "prev_actions", "prev_rewards", "t")


class SequenceReplayBuffer(ReplayBuffer):
    """Samples sequences of rows of an episode. Kapturowski et al. 2019 (R2D2, openreview.net/forum?id=r1lyTjAqYX).

    A sequence starts at step k·`stride` of an episode and trains `length` rows, or as many as are left; before them it
    has up to `burn_in` rows of the same episode, which only compute the model's state. So with `stride` = `length`
    every row is trained in exactly one sequence. A sequence can be drawn once it is complete.

    A batch of S sequences has flat rows `[N, …]`, one sequence after the other, without padding (`sample_batch.py`):
    with the columns of `ReplayBuffer.sample`, but "next_obs" (and "next_prev_actions", …) one step later, and n-step
    sums that end with their sequence. Further columns are

    - "seq_lens" int64 `[S]`; "state_in" `[S, …]` before each first row, "next_state_in" before each second one, if
      states are recorded;
    - "burn_in" bool `[N]`, the rows that are not trained;
    - "bootstrap_rows" int64 `[N]`: the row of the batch with the last reward of each sum; the value of its "next_obs"
      is the bootstrap value;
    - "batch_indexes" `[S]`, ids of the sequences.

    Args:
        capacity: rows.
        burn_in: number of rows before the trained ones, ≥ 0.
        length: number of trained rows, ≥ 1.
        stride: steps between the starts of sequences, in 1 … `length`; `None`: `length`. R2D2 uses half of it.
        columns, keywords: see `ReplayBuffer`; fragments need "t".

    Raises:
        ConfigError: a number is out of range.
    """

    @check_keywords("data")
    def __init__(
        self,
        capacity: int,
        *,
        burn_in: Whole = 40,
        length: Count = 80,
        stride: Count | None = None,
        columns: Sequence[str] = (*SEQUENCE_COLUMNS, *OF_STEPS),
        **keywords: Any,
    ) -> None:
        super().__init__(capacity, columns=(*columns, "t"), **keywords)
        self.burn_in, self.length, self.stride = burn_in, length, length if stride is None else stride
        if self.stride > length:
            raise ConfigError(f"stride={stride} between sequences of length={length}; expected at most the length")
        self._starts = np.zeros(0, np.uint8)  # by slot, whether a complete sequence starts here
        self._count = 0
        self._growing = np.zeros(0, np.int64)  # first slots of sequences that may still grow

    def __len__(self) -> int:
        """Number of sequences that can be sampled."""
        return self._count

    def _drawable_changes(self, vanished: np.ndarray, appeared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ring = self._ring()
        if "t" not in ring.columns:
            raise ConfigError("fragments have no column 't', the step within the episode; sequence replay needs it")
        if not len(self._starts):
            self._starts = np.zeros(ring.slots, np.uint8)
        gone = vanished[self._starts[vanished] > 0]
        self._starts[gone] = 0
        starting = appeared[ring.columns.array("t")[appeared] % self.stride == 0]
        growing = self._growing[~np.isin(self._growing, vanished)]
        growing = np.sort(np.concatenate((growing, starting)))  # the same order as after a restart
        complete = run_lengths(ring, growing, self.length)[1]
        self._growing, come = growing[~complete], growing[complete]
        self._starts[come] = 1
        self._count += len(come) - len(gone)
        return gone, come

    def _drawable(self) -> tuple[np.ndarray, int, int]:
        return self._starts[: self._ring().limit], 1, self._count

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state`; complete sequences are found again from the rows.

        Raises:
            CheckpointError: see `ReplayBuffer`.
        """
        super().load_state_dict(state)
        self._starts, self._growing, self._count = np.zeros(0, np.uint8), np.zeros(0, np.int64), 0
        if self.ring is not None:
            self._drawable_changes(self._growing, np.flatnonzero(self.ring.flags >= SAMPLEABLE))

    # -- a batch of sequences -----------------------------------------------------------------------------------------
    def _transitions(self, slots: np.ndarray) -> SampleBatch:
        ring, columns = self._ring(), self._ring().columns
        trained, _ = run_lengths(ring, slots, self.length)
        burnt = rows_before(ring, slots, self.burn_in)
        lens = trained + burnt
        within = np.arange(lens.sum()) - np.repeat(np.cumsum(lens) - lens, lens)
        rows = (np.repeat(slots - burnt * ring.num_envs, lens) + within * ring.num_envs) % ring.slots
        returns, more = n_step_returns(ring, rows, self._powers, self._of_steps, np.repeat(lens, lens) - within)
        obs, next_obs = columns.read_pair("obs", rows)
        batch = {
            "obs": obs,
            "next_obs": next_obs,
            **returns,
            "bootstrap_rows": torch.from_numpy(np.arange(len(rows)) + more),
            "burn_in": torch.from_numpy(within < np.repeat(burnt, lens)),
            "batch_indexes": torch.from_numpy(ring.ids(slots)),
            "seq_lens": torch.from_numpy(lens),
        }
        if "state_in" in columns:
            batch["state_in"], batch["next_state_in"] = columns.read_pair("state_in", rows[within == 0])
        add_columns(batch, ring, rows, rows)
        return SampleBatch(batch)


class PrioritizedSequenceReplayBuffer(SequenceReplayBuffer, PrioritizedReplayBuffer):
    """Sequences sampled by their TD errors: `update_priorities` takes one number per sequence.

    R2D2 uses η·max |δ| + (1 − η)·mean |δ| over the trained rows, η = 0.9.

    Args:
        capacity, keywords: see `SequenceReplayBuffer` and `PrioritizedReplayBuffer`.
    """


def rows_before(ring: Ring, slots: np.ndarray, most: int) -> np.ndarray:
    """Number of rows of the same episode stored before each row, up to `most`; int `[N]`."""
    before = slots[:, None] - np.arange(1, most + 1) * ring.num_envs
    # After an end or a discontinuity comes a slot without a step.
    inside = ring.flags.take(before, mode="wrap") >= SAMPLEABLE
    return np.logical_and.accumulate(inside, axis=1).sum(1)
