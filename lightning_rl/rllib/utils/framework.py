"""Which frameworks there are: PyTorch always, others never."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["TensorType", "try_import_jax", "try_import_tf", "try_import_tfp", "try_import_torch"]

TensorType = Any


def try_import_torch() -> tuple[Any, Any]:
    """The modules `torch` and `torch.nn`."""
    return torch, nn


def try_import_tf(error: bool = False) -> tuple[None, None, None]:
    """No module of TensorFlow 1, none of TensorFlow, no version, whether it is installed or not.

    Raises:
        ImportError: `error`.
    """
    if error:
        raise ImportError("there is no TensorFlow here; try_import_torch gives the modules of PyTorch")
    return None, None, None


def try_import_tfp(error: bool = False) -> None:
    """No module of TensorFlow Probability."""


def try_import_jax(error: bool = False) -> tuple[None, None]:
    """No modules of JAX and Flax."""
    return None, None
