"""RLlib's layers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["SlimFC", "normc_initializer"]


def normc_initializer(std: float = 1.0) -> Callable[[Tensor], None]:
    """A function that fills weights `[out, in]` so that each row has the norm `std`."""

    def initialize(weight: Tensor) -> None:
        with torch.no_grad():
            weight.normal_()
            weight *= std / weight.norm(dim=1, keepdim=True)

    return initialize


ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "swish": nn.SiLU, "silu": nn.SiLU, "linear": nn.Identity}


class SlimFC(nn.Sequential):
    """A linear layer `[N, in_size]` → `[N, out_size]`, perhaps with an activation.

    Args:
        in_size, out_size: widths.
        initializer: fills the weights; `None`: Xavier's uniform initialization.
        activation_fn: a module's class, or "tanh", "relu", "swish" or "linear"; `None`: none.
        use_bias, bias_init: whether there is a bias, and its first value.
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        initializer: Callable[[Tensor], object] | None = None,
        activation_fn: type[nn.Module] | str | None = None,
        use_bias: bool = True,
        bias_init: float = 0.0,
    ) -> None:
        linear = nn.Linear(in_size, out_size, bias=use_bias)
        (nn.init.xavier_uniform_ if initializer is None else initializer)(linear.weight)
        if use_bias:
            nn.init.constant_(linear.bias, bias_init)
        activation = ACTIVATIONS[activation_fn] if isinstance(activation_fn, str) else activation_fn
        super().__init__(linear, *([] if activation is None else [activation()]))
