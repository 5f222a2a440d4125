"""Batches of rows that are put together step by step, as a simulator of your own does."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_rl.rllib.sample_batch import SampleBatch

__all__ = ["SampleBatchBuilder"]


class SampleBatchBuilder:
    """Collects rows in lists, and makes them columns."""

    def __init__(self) -> None:
        self.buffers: dict[str, list[Any]] = {}

    @property
    def count(self) -> int:
        """Rows so far."""
        return max(map(len, self.buffers.values()), default=0)

    def add_values(self, **values: Any) -> None:
        """Append a row: a number or an array for each column."""
        for name, value in values.items():
            self.buffers.setdefault(name, []).append(value)

    def add_batch(self, batch: Any) -> None:
        """Append the rows of a batch."""
        for name, column in batch.items():
            self.buffers.setdefault(name, []).extend(column)

    def build_and_reset(self) -> SampleBatch:
        """The rows as a batch, float64 as float32; the builder is empty after it."""
        columns = {name: np.asarray(values) for name, values in self.buffers.items()}
        self.buffers = {}
        single = {name: column.astype(np.float32) for name, column in columns.items() if column.dtype == np.float64}
        return SampleBatch({**columns, **single})
