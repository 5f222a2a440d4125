"""What experience is read by: one method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

__all__ = ["InputReader"]


class InputReader(ABC):
    """Gives batches of experience in the place of the workers: `input` is a function `context -> InputReader`.

    The columns of a batch have RLlib's names or this package's: at least "obs", "new_obs", "actions", "rewards" and
    "terminateds" or "dones", in rows `[N, *]` of arrays. A batch ends no episode: its last row only ends one if it says
    so.

    Attributes:
        stopped: whether it gives no more batches, because its trainer stopped.
    """

    stopped: bool = False

    @abstractmethod
    def next(self) -> Any:
        """The next `SampleBatch` of rows; readers have no end."""

    def update_weights(self) -> None:  # noqa: B027
        """Called when the policy has new weights and is not learning: after each iteration, and by `set_weights`."""
