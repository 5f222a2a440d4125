"""Stores the configuration in every checkpoint, so that a file identifies its run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from lightning_rl.errors import has_import_path, import_path

__all__ = ["ConfigInCheckpoint", "to_plain"]


class ConfigInCheckpoint(Callback):
    """Writes the configuration into every checkpoint, under "config".

    Args:
        config: of the run.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Store plain data."""
        checkpoint["config"] = to_plain(self.config)


def to_plain(value: Any) -> Any:
    """Plain data for a config; a class or function becomes its import path, or `None` if it has none."""
    if isinstance(value, Mapping):
        return {str(key): to_plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(child) for child in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return import_path(value) if has_import_path(value) else None
