"""Base class of models around another model: the wrapped model's losses, metrics and attributes are used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lightning_rl.models.model import Model
from lightning_rl.models.previous_step import PREVIOUS
from lightning_rl.sample_batch import SampleBatch

__all__ = ["ModelWrapper"]


class ModelWrapper(Model):
    """A model around another one, which provides custom loss, metrics, state, and attributes that this one lacks.

    Args:
        wrapped: the inner model.
        num_outputs: see `Model`.
        spaces: obs_space, action_space, and preprocessor, if they differ from those of the inner model.
    """

    def __init__(self, wrapped: Model, num_outputs: int, **spaces: Any) -> None:
        own = {name: getattr(wrapped, name) for name in ("obs_space", "action_space", "preprocessor")} | spaces
        super().__init__(num_outputs=num_outputs, **own)
        self.wrapped = wrapped
        for name in PREVIOUS:
            setattr(self, name, getattr(wrapped, name))
        self.reads_preprocessed = wrapped.reads_preprocessed

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:  # losses and action distributions use attributes of the custom model
            wrapped = self.__dict__.get("_modules", {}).get("wrapped")
            if wrapped is None or name.startswith("__"):
                raise
            return getattr(wrapped, name)

    def get_initial_state(self) -> list[Tensor]:
        """The wrapped model's initial state."""
        return self.wrapped.get_initial_state()

    def derived_inputs(self, input_dict: Mapping[str, Any]) -> Mapping[str, Any]:
        """Those of the wrapped model."""
        return self.wrapped.derived_inputs(input_dict)

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> Tensor | list[Tensor]:
        """The wrapped model's custom loss."""
        return self.wrapped.loss_with_custom(policy_loss, loss_inputs)

    def metrics(self) -> dict[str, Tensor | float]:
        """The wrapped model's metrics."""
        return self.wrapped.metrics()
