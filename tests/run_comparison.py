"""Compares what two runs learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_rl.policies import Policy


def learned_state(run_dir: Path) -> dict[str, Any]:
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


def assert_equal_weights(first: Policy, second: Policy) -> None:
    """Raise unless the weights of both policies are bitwise equal."""
    for name, value in first.get_weights().items():
        assert np.array_equal(value, second.get_weights()[name]), name
