"""Base class of models around another model: the wrapped model's losses, metrics and attributes are used."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lightning_rl.models.model import Model
from lightning_rl.sample_batch import SampleBatch

__all__ = ["ModelWrapper"]


class ModelWrapper:
    """Mixin for a `Model` that contains another one as `wrapped`.

    Attributes:
        wrapped: the inner model, which provides custom loss, metrics, and attributes that this one lacks.
    """

    wrapped: Model

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)  # type: ignore[misc]
        except AttributeError:  # losses and action distributions use attributes of the custom model
            wrapped = self.__dict__.get("_modules", {}).get("wrapped")
            if wrapped is None or name.startswith("__"):
                raise
            return getattr(wrapped, name)

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> Tensor | list[Tensor]:
        """The wrapped model's custom loss."""
        return self.wrapped.custom_loss(policy_loss, loss_inputs)

    def metrics(self) -> dict[str, Tensor | float]:
        """The wrapped model's metrics."""
        return self.wrapped.metrics()
