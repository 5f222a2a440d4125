"""RLlib's helpers that show what is computed."""

from __future__ import annotations

from collections.abc import Mapping
from pprint import pformat
from typing import Any

import numpy as np

from lightning_rl.rllib.utils.torch_utils import convert_to_non_torch_type

__all__ = ["log_once", "summarize"]

SHOWN: set[str] = set()


def log_once(key: str) -> bool:
    """Whether this process asks for a key for the first time."""
    first = key not in SHOWN
    SHOWN.add(key)
    return first


def summarize(obj: Any) -> str:
    """Nested values as text, with shape, dtype, range and mean of arrays in place of their entries."""
    return pformat(_summary(obj), width=120)


def _summary(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _summary(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_summary, value)) if type(value) in (list, tuple) else [*map(_summary, value)]
    value = convert_to_non_torch_type(value)
    if not isinstance(value, np.ndarray):
        return value
    text = f"array(shape={value.shape}, dtype={value.dtype}"
    if value.size and value.dtype.kind in "biuf":
        text += f", min={value.min():.3f}, max={value.max():.3f}, mean={value.mean():.3f}"
    return f"{text})"
