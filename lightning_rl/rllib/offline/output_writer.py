"""What experience is written by: one method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

__all__ = ["NoopOutput", "OutputWriter"]


class OutputWriter(ABC):
    """Gets the experience of a worker: `output` is a function `context -> OutputWriter`."""

    @abstractmethod
    def write(self, sample_batch: Any, /) -> None:
        """Take a `SampleBatch` of rows, or with several agents a `MultiAgentBatch`."""


class NoopOutput(OutputWriter):
    """Drops the experience."""

    def write(self, sample_batch: Any, /) -> None:
        """Nothing."""
