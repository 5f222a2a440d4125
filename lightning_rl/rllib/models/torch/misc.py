"""RLlib's layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from lightning_rl.rllib.models.utils import get_activation_fn

__all__ = ["AppendBiasLayer", "Reshape", "SlimConv2d", "SlimFC", "normc_initializer", "same_padding"]


def normc_initializer(std: float = 1.0) -> Callable[[Tensor], None]:
    """A function that fills weights `[out, in]` so that each row has the norm `std`."""

    def initialize(weight: Tensor) -> None:
        with torch.no_grad():
            weight.normal_()
            weight *= std / weight.norm(dim=1, keepdim=True)

    return initialize


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
        activation = get_activation_fn(activation_fn)
        super().__init__(linear, *([] if activation is None else [activation()]))


class SlimConv2d(nn.Sequential):
    """A convolution `[N, in_channels, H, W]` → `[N, out_channels, H', W']`, perhaps with padding and an activation.

    Args:
        in_channels, out_channels: channels.
        kernel, stride: size and step of the filter, one number or two.
        padding: `None` or 0: none; else as of `nn.ZeroPad2d`, such as the first result of `same_padding`.
        initializer: fills the weights; `None` or "default": Xavier's uniform initialization.
        activation_fn: see `SlimFC`; "default" is ReLU.
        bias_init: the first value of the bias.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int | tuple[int, int],
        stride: int | tuple[int, int],
        padding: int | tuple[int, int, int, int] | None,
        initializer: Callable[[Tensor], object] | str | None = "default",
        activation_fn: type[nn.Module] | str | None = "default",
        bias_init: float = 0.0,
    ) -> None:
        convolution = nn.Conv2d(in_channels, out_channels, kernel, stride)
        (initializer if callable(initializer) else nn.init.xavier_uniform_)(convolution.weight)
        nn.init.constant_(convolution.bias, bias_init)  # type: ignore[arg-type]
        activation = nn.ReLU if activation_fn == "default" else get_activation_fn(activation_fn)
        before = [nn.ZeroPad2d(padding)] if padding else []
        super().__init__(*before, convolution, *([] if activation is None else [activation()]))


class AppendBiasLayer(nn.Module):
    """Appends learned numbers to each row: `[N, F]` → `[N, F + num_bias_vars]`.

    Args:
        num_bias_vars: how many; they begin at 0.
    """

    def __init__(self, num_bias_vars: int) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.zeros(num_bias_vars))

    def forward(self, x: Tensor) -> Tensor:
        """The longer rows."""
        return torch.cat([x, self.log_std.expand(len(x), -1)], 1)


class Reshape(nn.Module):
    """Gives tensors another shape.

    Args:
        shape: the shape; one size may be −1.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, x: Tensor) -> Tensor:
        """The tensor in the shape."""
        return x.reshape(self.shape)


def same_padding(
    in_size: tuple[int, int], filter_size: int | tuple[int, int], stride_size: int | tuple[int, int]
) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
    """Padding (left, right, top, bottom) with which the output of a convolution has ⌈size / stride⌉ entries; that size.

    Args:
        in_size: height and width.
        filter_size, stride_size: the convolution's sizes, one number or two.
    """
    kernel = (filter_size, filter_size) if isinstance(filter_size, int) else filter_size
    stride = (stride_size, stride_size) if isinstance(stride_size, int) else stride_size
    height, width = (-(-size // step) for size, step in zip(in_size, stride, strict=True))
    rows = max(0, (height - 1) * stride[0] + kernel[0] - in_size[0])
    columns = max(0, (width - 1) * stride[1] + kernel[1] - in_size[1])
    return (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2), (height, width)
