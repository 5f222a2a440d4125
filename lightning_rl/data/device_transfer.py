"""Copies a batch to the device that learns: to a GPU while the CPU continues."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lightning_rl.sample_batch import SampleBatch

__all__ = ["to_device"]


def to_device(batch: SampleBatch, device: torch.device) -> SampleBatch:
    """`batch` on `device`; to a GPU from pinned memory, so that only code that reads the copy waits for it.

    Torch keeps the pinned memory until the copy is done, and gives it to the next batch.
    """
    if device.type != "cuda":
        return batch.to(device)
    return batch.map(_pin).to(device, non_blocking=True)


def _pin(column: Any) -> Tensor:
    tensor = torch.as_tensor(column)
    return tensor if tensor.device.type != "cpu" or tensor.is_pinned() else tensor.pin_memory()
