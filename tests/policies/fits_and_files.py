"""Fits policies without output, writes their checkpoints, and compares what they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

from lightning_rl.policies.policy_module import PolicyModule

__all__ = ["assert_same", "content_of", "differ", "loader", "saved", "trainer_of", "weights_of"]


def trainer_of(directory: Path, **keywords: Any) -> Trainer:
    """A Trainer of one epoch that writes nothing."""
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    return Trainer(default_root_dir=directory, accelerator="cpu", **{"max_epochs": 1, **quiet, **keywords})


def loader(*batches: Any) -> DataLoader[Any]:
    """A loader of these batches."""
    return DataLoader(list(batches), batch_size=None)  # type: ignore[arg-type]


def content_of(policy: PolicyModule) -> dict[str, Any]:
    """A checkpoint's content as a run writes it, without the optimizers."""
    content: dict[str, Any] = {"state_dict": policy.state_dict()}
    policy.on_save_checkpoint(content)
    return content


def saved(policy: Any, file: Path) -> Path:
    """The file with a policy's checkpoint, or with a content."""
    torch.save(policy if isinstance(policy, dict) else content_of(policy), file)
    return file


def weights_of(policy: PolicyModule) -> dict[str, torch.Tensor]:
    """Copies of its parameters and buffers."""
    return {name: value.clone() for name, value in policy.state_dict().items()}


def assert_same(one: Any, other: Any) -> None:
    """Raise unless the nested containers of tensors, arrays and numbers are bitwise equal."""
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def differ(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether any tensor differs."""
    return any(not torch.equal(value, other[name]) for name, value in one.items())
