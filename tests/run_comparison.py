"""Compares what two runs learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def learned(run_dir: Path) -> dict[str, Any]:
    checkpoint = torch.load(run_dir / "checkpoints" / "last.ckpt", weights_only=True)
    (optimizer,) = checkpoint["optimizer_states"]
    return {"weights": checkpoint["state_dict"], "moments": optimizer["state"], "counters": checkpoint["counters"]}


def assert_equal(first: Any, second: Any, where: str = "") -> None:
    if isinstance(first, dict):
        assert first.keys() == second.keys(), where
        for key in first:
            assert_equal(first[key], second[key], f"{where}.{key}")
    elif isinstance(first, list):
        assert_equal(dict(enumerate(first)), dict(enumerate(second)), where)
    elif isinstance(first, torch.Tensor):
        assert (first.dtype, first.shape) == (second.dtype, second.shape), where
        assert torch.equal(first, second), where
    else:
        assert first == second, where
