"""For models around another model: what the inner one defines counts as theirs."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lightning_rl.models.model import Model
from lightning_rl.sample_batch import SampleBatch

__all__ = ["ModelWrapper"]


class ModelWrapper:
    """Mixed into a `Model` that keeps another one as `wrapped`.

    Attributes:
        wrapped: whose custom loss, metrics and attributes count as this one's.
    """

    wrapped: Model

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)  # type: ignore[misc]
        except AttributeError:  # losses and action distributions look for what the custom model defines
            wrapped = self.__dict__.get("_modules", {}).get("wrapped")
            if wrapped is None or name.startswith("__"):
                raise
            return getattr(wrapped, name)

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> Tensor | list[Tensor]:
        """The wrapped model's."""
        return self.wrapped.custom_loss(policy_loss, loss_inputs)

    def metrics(self) -> dict[str, Tensor | float]:
        """The wrapped model's."""
        return self.wrapped.metrics()
