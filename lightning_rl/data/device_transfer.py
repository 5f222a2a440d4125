"""How a batch gets to the device that learns: to a GPU beside whatever the CPU does next."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lightning_rl.sample_batch import SampleBatch

__all__ = ["moved"]


def moved(batch: SampleBatch, device: torch.device) -> SampleBatch:
    """`batch` on `device`. A GPU fetches it from pinned memory, so that nobody waits for the copy but who reads it.

    Torch keeps the pinned memory until the copy is done, and gives it to the next batch.
    """
    if device.type != "cuda":
        return batch.to(device)
    return batch.map(_pinned).to(device, non_blocking=True)


def _pinned(column: Any) -> Tensor:
    tensor = torch.as_tensor(column)
    return tensor if tensor.device.type != "cpu" or tensor.is_pinned() else tensor.pin_memory()
