"""Samples of spaces as batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import Space

from lightning_rl.spaces import leaf_values, pack_leaves


def sample_space(space: Space[Any], count: int) -> tuple[list[Any], Any]:
    """`count` single observations and the same ones as nested tensors `[count, *]`."""
    singles = [space.sample() for _ in range(count)]
    rows = [leaf_values(space, single) for single in singles]
    leaves = [torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True)]
    return singles, pack_leaves(space, iter(leaves))
