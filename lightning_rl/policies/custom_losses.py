"""Extra losses named in the config (or passed as callables), added to any algorithm's loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lightning_rl.errors import ConfigError, import_object
from lightning_rl.sample_batch import SampleBatch

__all__ = ["CustomLosses"]


class CustomLosses:
    """A list of extra losses.

    Args:
        losses: each an import path, a callable, or a mapping `{loss: path or callable, weight: 1.0, **keywords}`. A
            loss is called as
            `loss(policy, batch, **keywords)` with the minibatch that is learned from, and returns a scalar tensor, or
            (scalar, metrics).

    Raises:
        ConfigError: an entry is none of these.
    """

    def __init__(self, losses: Sequence[Any]) -> None:
        self.losses: list[tuple[str, Any, float, dict[str, Any]]] = [_parsed(entry) for entry in losses]

    def __call__(self, policy: Any, batch: SampleBatch) -> tuple[Tensor | None, dict[str, Tensor]]:
        """Weighted sum of the extra losses (`None` if there are none), and their values by name."""
        total: Tensor | None = None
        metrics: dict[str, Tensor] = {}
        for name, loss, weight, keywords in self.losses:
            result = loss(policy, batch, **keywords)
            value, extra = result if isinstance(result, tuple) else (result, {})
            if not isinstance(value, Tensor) or value.dim() != 0:
                raise ConfigError(
                    f"custom loss {name!r} returned {value!r}; expected a scalar tensor, or (scalar tensor, metrics)"
                )
            metrics |= {name: value, **{f"{name}/{key}": torch.as_tensor(number) for key, number in extra.items()}}
            total = weight * value if total is None else total + weight * value
        return total, metrics


def _parsed(entry: Any) -> tuple[str, Any, float, dict[str, Any]]:
    keywords = dict(entry) if isinstance(entry, Mapping) else {"loss": entry}
    loss = keywords.pop("loss", None)
    weight = float(keywords.pop("weight", 1.0))
    loss = import_object(loss) if isinstance(loss, str) else loss
    if not callable(loss):
        raise ConfigError(
            f"custom_losses entry {entry!r}: expected an import path, a callable, or {{loss: …, weight: …}}"
        )
    return getattr(loss, "__name__", type(loss).__name__), loss, weight, keywords
