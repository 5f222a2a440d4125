"""Low precision where it pays, in the networks, and nowhere else: what a loss makes of their outputs stays float32.

Lightning's own plugins put the whole `training_step` under autocast, and with it acting, replay and the targets of a
whole rollout; "bf16-true" also makes bfloat16 of running statistics and of every new tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from lightning.pytorch.plugins import HalfPrecision, MixedPrecision, Precision
from torch import Tensor, nn

__all__ = ["LowPrecisionLoss", "LowPrecisionWeights", "precision_plugin"]

ALIASES = {"bf16": "bf16-mixed", "16": "16-mixed", 16: "16-mixed"}


def precision_plugin(precision: Any, device: str) -> Precision | None:
    """What a Trainer does in this precision; `None` where Lightning's own plugin is right.

    Args:
        precision: Lightning's name of it.
        device: type of the device that learns.
    """
    name = ALIASES.get(precision, precision)
    if name in ("16-mixed", "bf16-mixed"):
        return LowPrecisionLoss(name, device)
    if name in ("16-true", "bf16-true"):
        return LowPrecisionWeights(name, device)
    return None


class LowPrecisionLoss(MixedPrecision):
    """Weights in float32; the networks compute in half precision while a loss is computed, and give float32."""

    def forward_context(self) -> Any:
        """Around a whole `training_step`: nothing."""
        return nullcontext()

    def loss_context(self) -> AbstractContextManager[Any]:
        """Around a loss; policies enter it."""
        return self.autocast_context_manager()

    def convert_module(self, module: nn.Module) -> nn.Module:
        """Let the networks give float32, whatever they compute in."""
        give_float32(module)
        return module


class LowPrecisionWeights(HalfPrecision):
    """Weights, gradients and the optimizer's moments in half precision; buffers, such as statistics, as they are.

    Args:
        precision: "16-true" or "bf16-true".
        device: type of the device that learns.
    """

    def __init__(self, precision: Any, device: str) -> None:
        super().__init__(precision)
        self.device = device

    @contextmanager
    def forward_context(self) -> Iterator[None]:
        """Autocast brings float32 inputs and half-precision weights together."""
        with torch.autocast(self.device, dtype=self._desired_input_dtype, cache_enabled=False):
            yield

    def tensor_init_context(self) -> Any:
        """New tensors are float32."""
        return nullcontext()

    def convert_module(self, module: nn.Module) -> nn.Module:
        """Make half-precision parameters of the float32 ones."""
        give_float32(module)
        for parameter in module.parameters():
            if parameter.dtype == torch.float32:
                parameter.data = parameter.data.to(self._desired_input_dtype)
        return module

    def convert_input(self, data: Any) -> Any:
        """Batches stay as they are: rewards, advantages and targets are not to be rounded."""
        return data


def give_float32(policy: nn.Module) -> None:
    """Make the outputs of all networks of a policy float32."""
    for network in policy.children():
        if next(network.parameters(), None) is not None:
            network.register_forward_hook(outputs_in_float32)


def outputs_in_float32(network: nn.Module, inputs: Any, outputs: Any) -> Any:
    """A forward hook: tensors of floating point, alone or in lists and tuples, as float32."""
    if isinstance(outputs, Tensor):
        return outputs.float() if outputs.is_floating_point() else outputs
    if isinstance(outputs, list | tuple):
        return type(outputs)(outputs_in_float32(network, inputs, each) for each in outputs)
    return outputs
