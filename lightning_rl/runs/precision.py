"""Low precision for the networks inside a loss only; losses and everything else are computed in float32.

Lightning's own plugins apply autocast to the whole `training_step`, including acting, replay and the targets of a
rollout; "bf16-true" also converts running statistics and every new tensor to bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.plugins import HalfPrecision, MixedPrecision, Precision
from torch import Tensor, nn

__all__ = ["LowPrecisionLoss", "LowPrecisionWeights", "precision_plugin"]

ALIASES = {"bf16": "bf16-mixed", "16": "16-mixed", 16: "16-mixed"}


def precision_plugin(precision: Any, device: str) -> Precision | None:
    """The precision plugin for a Trainer; `None` if Lightning's own one is right.

    Args:
        precision: Lightning's name of the precision.
        device: type of the device that learns.
    """
    name = ALIASES.get(precision, precision)
    if name in ("16-mixed", "bf16-mixed"):
        return LowPrecisionLoss(name, device)
    if name in ("16-true", "bf16-true"):
        return LowPrecisionWeights(name, device)
    return None


class LowPrecisionLoss(MixedPrecision):
    """Weights in float32; inside a loss, networks compute in half precision and return float32."""

    def forward_context(self) -> Any:
        """No autocast around a whole `training_step`."""
        return nullcontext()

    def loss_context(self) -> AbstractContextManager[Any]:
        """Autocast around a loss; policies enter this context."""
        return self.autocast_context_manager()

    def optimizer_step(
        self, optimizer: Any, model: LightningModule, closure: Callable[[], Any], **keywords: Any
    ) -> Any:
        """Step; with float16 without unscaling the gradients first, as the optimizer did that to clip them.

        Lightning's own method unscales again, which torch refuses, unless the optimizer is a fused one.
        """
        if self.scaler is None:
            return super().optimizer_step(optimizer, model, closure, **keywords)
        closure()
        self._after_closure(model, optimizer)
        output = self.scaler.step(optimizer, **keywords)
        self.scaler.update()
        return output

    def convert_module(self, module: nn.Module) -> nn.Module:
        """Make the networks return float32, whatever precision they compute in."""
        give_float32(module)
        return module


class LowPrecisionWeights(HalfPrecision):
    """Weights, gradients and the optimizer's moments in half precision; buffers, such as statistics, are not converted.

    Args:
        precision: "16-true" or "bf16-true".
        device: type of the device that learns.
    """

    def __init__(self, precision: Any, device: str) -> None:
        super().__init__(precision)
        self.device = device

    @contextmanager
    def forward_context(self) -> Iterator[None]:
        """Autocast, which combines float32 inputs with half-precision weights."""
        with torch.autocast(self.device, dtype=self._desired_input_dtype, cache_enabled=False):
            yield

    def tensor_init_context(self) -> Any:
        """New tensors stay float32."""
        return nullcontext()

    def convert_module(self, module: nn.Module) -> nn.Module:
        """Convert float32 parameters to half precision."""
        give_float32(module)
        for parameter in module.parameters():
            if parameter.dtype == torch.float32:
                parameter.data = parameter.data.to(self._desired_input_dtype)
        return module

    def convert_input(self, data: Any) -> Any:
        """Leave batches as they are: rewards, advantages and targets must not be rounded."""
        return data


def give_float32(policy: nn.Module) -> None:
    """Make all networks of a policy return float32."""
    for network in policy.children():
        if next(network.parameters(), None) is not None:
            network.register_forward_hook(outputs_in_float32)


def outputs_in_float32(network: nn.Module, inputs: Any, outputs: Any) -> Any:
    """Forward hook that converts floating-point tensors, alone or in lists and tuples, to float32."""
    if isinstance(outputs, Tensor):
        return outputs.float() if outputs.is_floating_point() else outputs
    if isinstance(outputs, list | tuple):
        return type(outputs)(outputs_in_float32(network, inputs, each) for each in outputs)
    return outputs
