"""A metric: how often the policy goes right."""

from __future__ import annotations

from typing import Any

from lightning_rl import RLCallback
from lightning_rl.callbacks import register_metric

register_metric("train/share_right", "share of the actions that go right")


class ShareRight(RLCallback):
    """Adds train/share_right to the metrics of an iteration."""

    def on_learn_on_batch(self, *, train_batch: Any, result: dict[str, float], **kwargs: Any) -> None:
        """Numbers in `result` are logged as train/NAME."""
        result["share_right"] = float((train_batch["actions"] == 1).float().mean())
