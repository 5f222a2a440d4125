"""Whether PyTorch is there, which it always is."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["TensorType", "try_import_torch"]

TensorType = Any


def try_import_torch() -> tuple[Any, Any]:
    """The modules `torch` and `torch.nn`."""
    return torch, nn
