"""Results of workers: what one worker returned, and a reference to samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from lightning_rl.sample_batch import AnyBatch

__all__ = ["SampleReference", "WorkerResult", "as_writable"]


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """The result of a function that was submitted to one worker.

    Attributes:
        worker_index: the index of the worker.
        value: what the function returned.
        gradient_steps: that the worker's weights had taken.
    """

    worker_index: int
    value: Any
    gradient_steps: int


@dataclass(frozen=True, slots=True)
class SampleReference:
    """Fragments that workers have collected, which may still are in another process.

    Attributes:
        fragments: a list of fragments; or a reference to one in a process's store, which can be handed on.
        env_steps: rows of experience in them.
        gradient_steps: that the weights which acted had taken.
        count: how many fragments, one of each logical worker of the process.
        nbytes: the size in bytes of all their columns.
    """

    fragments: Any
    env_steps: int
    gradient_steps: int
    count: int = 1
    nbytes: int = 0


def as_writable(arrays: AnyBatch) -> Any:
    """Arrays as tensors that can be written to; read-only arrays in shared memory are copied."""
    return arrays.map(lambda array: torch.from_numpy(array if array.flags.writeable else array.copy()))
