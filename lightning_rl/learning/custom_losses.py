"""Extra losses named in the config (or passed as callables), added to any algorithm's loss."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import torch
from torch import Tensor

from lightning_rl.errors import ConfigError, import_object, short_repr
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.signatures import ImportPath, coerce

__all__ = ["CustomLosses", "LossEntries"]


class CustomLosses:
    """A list of extra losses.

    Args:
        losses: each an import path, a callable, or a mapping `{loss: path or callable, weight: 1.0, **keywords}`. A
            loss is called as `loss(policy, batch, **keywords)` with the minibatch, and returns a scalar tensor, or
            (scalar, metrics).

    Raises:
        ConfigError: an entry is none of these.
    """

    def __init__(self, losses: Sequence[Any]) -> None:
        self.losses = [parse_loss(f"policy.custom_losses[{index}]", entry) for index, entry in enumerate(losses)]

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


class LossEntry:
    """Checks an entry of `custom_losses`, in the form that `CustomLosses` documents."""

    def coerce(self, key: str, value: Any) -> Any:
        """The entry, unchanged.

        Raises:
            ConfigError: it names no loss, or the loss does not take the keywords.
        """
        parse_loss(key, value)
        return value


LossEntries = Sequence[Annotated[Any, LossEntry()]]


def parse_loss(key: str, entry: Any) -> tuple[str, Any, float, dict[str, Any]]:
    """Name, function, weight and keywords of an entry of `custom_losses`.

    Raises:
        ConfigError: it names no loss, or the loss does not take the keywords.
    """
    keywords = dict(entry) if isinstance(entry, Mapping) else {"loss": entry}
    named = keywords.pop("loss", None)
    weight = coerce(f"{key}.weight", keywords.pop("weight", 1.0), float)
    if not isinstance(named, str) and not callable(named):
        raise ConfigError(f"{key}={short_repr(entry)}; expected an import path, a callable, or {{loss: …, weight: …}}")
    coerce(key, named, ImportPath)
    loss = import_object(named) if isinstance(named, str) else named
    try:
        inspect.signature(loss).bind(None, None, **keywords)
    except TypeError as error:
        raise ConfigError(
            f"{key}={short_repr(entry)}: {error}; it is called as loss(policy, batch, **keywords)"
        ) from error
    except ValueError:  # a signature that Python cannot read
        pass
    return getattr(loss, "__name__", type(loss).__name__), loss, float(weight), keywords
