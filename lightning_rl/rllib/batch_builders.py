"""Batches of rows that are put together step by step, as a simulator of your own does."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_rl.rllib.sample_batch import MultiAgentBatch, SampleBatch

__all__ = ["MultiAgentSampleBatchBuilder", "SampleBatchBuilder"]


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


class MultiAgentSampleBatchBuilder:
    """Collects rows of agents, and makes them batches of their policies, the rows of one agent after the other."""

    def __init__(self) -> None:
        self.builders: dict[tuple[str, Any], SampleBatchBuilder] = {}

    def total(self) -> int:
        """Rows so far."""
        return sum(builder.count for builder in self.builders.values())

    count = property(total)

    def has_pending_agent_data(self) -> bool:
        """Whether there are rows."""
        return self.total() > 0

    def add_values(self, agent_id: Any, policy_id: str, **values: Any) -> None:
        """Append a row of an agent: a number or an array for each column."""
        self.builders.setdefault((policy_id, agent_id), SampleBatchBuilder()).add_values(**values)

    def build_and_reset(self, episode: Any = None) -> MultiAgentBatch:
        """The rows by policy; the builder is empty after it."""
        parts: dict[str, list[SampleBatch]] = {}
        for (policy_id, _), builder in self.builders.items():
            parts.setdefault(policy_id, []).append(builder.build_and_reset())
        self.builders = {}
        batches = {name: SampleBatch.concat_samples(own) for name, own in parts.items()}
        return MultiAgentBatch(batches, max((batch.count for batch in batches.values()), default=0))
