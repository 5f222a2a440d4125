"""Convolutional networks for images; uint8 pixels are converted to floats on the network's device only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import Space, spaces
from torch import Tensor, nn

from lightning_rl.errors import ConfigError, short_repr
from lightning_rl.models.batch_norm import NormPlace
from lightning_rl.models.encoder_model import EncoderModel
from lightning_rl.models.layers import ACTIVATIONS, MLP, activation_name, initialize
from lightning_rl.models.preprocessors import Preprocessor
from lightning_rl.models.residual import residual_stacks
from lightning_rl.schema.ranges import Range
from lightning_rl.schema.signatures import coerce
from lightning_rl.spaces import leaf_spaces

__all__ = [
    "NATURE_FILTERS",
    "Filters",
    "ImageEncoder",
    "VisionNetwork",
    "image_paths",
    "images_in",
    "is_image",
    "undivided_images",
]

Filters = Sequence[Sequence[Any]]

NATURE_FILTERS: Filters = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # Mnih et al. 2015, doi:10.1038/nature14236
# Smallest side of an image → filters, and the width of the layer behind them, which has no more units than inputs.
NETWORKS_BY_SIDE: tuple[tuple[int, Filters, int], ...] = (
    (8, ((16, 3, 1),), 128),  # MinAtar's, for 10 × 10: Young and Tian 2019, arXiv:1903.03176
    (12, ((16, 4, 2), (32, 3, 1)), 128),
    (24, ((16, 4, 2), (32, 4, 2)), 256),
    (36, NATURE_FILTERS[:2], 256),
    (64, NATURE_FILTERS, 512),
)
SMALLEST_SIDE, LARGEST_SIDE = NETWORKS_BY_SIDE[0][0], 128
IMAGE_DIMENSIONS = (2, 3, 4)  # gray values, images with channels, stacks of these
MOST_STACKED = 16  # images in a stack
RESIDUAL_POST_HIDDENS = (256,)  # IMPALA's


class FilterList:
    """Hint for `[[out channels, kernel, stride], …]`: a kernel or stride may be a pair, a fourth entry "same" pads."""

    def coerce(self, key: str, value: Any) -> Filters:
        """Check the filters and return them, with integers in place of whole floats.

        Raises:
            ConfigError: an entry has another form, or a number is out of range.
        """
        expected = "[[out_channels, kernel, stride], …]"
        if not isinstance(value, list | tuple) or not value:
            raise ConfigError(f"{key}={short_repr(value)}; expected {expected}")
        found = []
        for index, entry in enumerate(value):
            if not isinstance(entry, list | tuple) or len(entry) not in (3, 4) or list(entry[3:]) not in ([], ["same"]):
                raise ConfigError(
                    f'{key}[{index}]={short_repr(entry)}; expected [out_channels, kernel, stride], and perhaps "same"'
                )
            channels, kernel, stride, *padding = entry
            pairs = [coerce(f"{key}[{index}]", side, Side | Sequence[Side]) for side in (kernel, stride)]
            if any(not isinstance(pair, int) and len(pair) != 2 for pair in pairs):
                raise ConfigError(
                    f"{key}[{index}]={short_repr(entry)}; expected a kernel and a stride of one or two sides"
                )
            found.append([coerce(f"{key}[{index}]", channels, Channels), *pairs, *padding])
        return found


Channels = Annotated[int, Range(1, 8192)]
Side = Annotated[int, Range(1, 1024)]  # side of a kernel, or a stride
ConvFilters = Annotated[Sequence[Any], FilterList()]


def is_image(space: Space[Any]) -> bool:
    """Whether the default model treats a space as an image, with both sides at least 8 pixels.

    That is a Box of 3 dimensions, a stack of up to 16 of these, or uint8 gray values 0 … 255 without channels.
    """
    if not isinstance(space, spaces.Box) or len(space.shape) not in IMAGE_DIMENSIONS:
        return False
    if len(space.shape) == 4 and space.shape[0] > MOST_STACKED:
        return False
    if len(space.shape) == 2 and not (space.dtype == np.uint8 and holds_pixels(space)):
        return False
    return min(image_size(space.shape)[:2]) >= SMALLEST_SIDE


def holds_pixels(space: spaces.Box) -> bool:
    """Whether the bounds of a Box are those of pixels, 0 … 255."""
    return bool((space.low == 0).all() and (space.high == 255).all())


def undivided_images(space: Space[Any]) -> list[str]:
    """Paths of the parts of a space that hold pixels in 0 … 255 as another type than uint8; "" for the space itself.

    Networks read them undivided, where uint8 is divided by 255.
    """
    return [
        path
        for path, leaf in leaf_spaces(space)
        if isinstance(leaf, spaces.Box)
        and leaf.dtype != np.uint8
        and len(leaf.shape) in IMAGE_DIMENSIONS
        and min(image_size(leaf.shape)[:2]) >= SMALLEST_SIDE
        and holds_pixels(leaf)
    ]


def image_paths(space: Space[Any], convolutions_given: bool = False) -> list[str]:
    """Paths of the parts of a space that are images; "" if the space itself is one.

    Args:
        space: the space of the observations.
        convolutions_given: whether the config has convolutions; if no part is an image by `is_image`, all parts of 3
            dimensions then count as images.
    """
    leaves = list(leaf_spaces(space))
    found = [path for path, leaf in leaves if is_image(leaf)]
    if found or not convolutions_given:
        return found
    return [path for path, leaf in leaves if len(leaf.shape or ()) == 3]


def channels_first(shape: Sequence[int]) -> bool:
    """Whether the channels of an image shape come first: two equal sides are the image, else the shorter end is.

    Of a stack `[K, *]` of images it is their own; gray values `[H, W]` get their channel first.
    """
    if len(shape) != 3:
        return len(shape) == 2 or channels_first(shape[1:])
    if (shape[0] == shape[1]) != (shape[1] == shape[2]):
        return shape[1] == shape[2]
    return shape[0] < shape[2]


def image_size(shape: Sequence[int]) -> tuple[int, int, int]:
    """(height, width, channels) of an image shape with the channels first or last; a stack's are side by side."""
    if len(shape) == 2:
        return shape[0], shape[1], 1
    if len(shape) == 4:
        height, width, channels = image_size(shape[1:])
        return height, width, shape[0] * channels
    return (shape[1], shape[2], shape[0]) if channels_first(shape) else (shape[0], shape[1], shape[2])


def images_in(space: Space[Any], config: Mapping[str, Any]) -> list[str]:
    """`image_paths` for a model config."""
    return image_paths(space, config["conv_filters"] is not None or config["conv_residual_channels"] is not None)


def network_for(height: int, width: int) -> tuple[Filters, int]:
    """Default filters for an image of that size, and the width of the fully connected layer behind them.

    Raises:
        ConfigError: none fit; the message says what to do.
    """
    side = min(height, width)
    if side < SMALLEST_SIDE or max(height, width) > LARGEST_SIDE:
        raise ConfigError(
            f"no built-in convolutions for {height}×{width} images (sides of {SMALLEST_SIDE} to {LARGEST_SIDE} have "
            "them): set model.conv_filters=[[out_channels, kernel, stride], …], take model=impala_resnet (any size) "
            "or resize in a wrapper (Atari: AtariPreprocessing gives 84×84)"
        )
    return next((filters, behind) for smallest, filters, behind in reversed(NETWORKS_BY_SIDE) if side >= smallest)


class ImageEncoder(nn.Module):
    """Convolutions and fully connected layers: computes a feature vector from an image.

    Args:
        shape: shape of an image, `[H, W, C]` or `[C, H, W]`; of a stack `[K, *]` of images, which is an image of K · C
            channels; or `[H, W]`.
        conv_filters: `[out channels, kernel, stride]` of each convolution (without padding; a fourth entry "same" pads,
            `SameConv2d`); `None` chooses them by the size.
        conv_activation: activation of the convolutions; one of `ACTIVATIONS`.
        post_fcnet_hiddens: widths of the layers after them; `None`: one layer, 128 to 512 wide after default filters,
            256 after residual stacks, and none after given filters.
        post_fcnet_activation: activation of these layers.
        initializer: see `initialize`.
        conv_residual_channels: widths of residual stacks instead of `conv_filters`; they take images of any size.
        layer_norm, batch_norm: see `MLP`, in the layers after the convolutions.

    Raises:
        ConfigError: no filters fit the size, the given ones shrink the image to nothing, or both kinds are given.
    """

    def __init__(
        self,
        shape: Sequence[int],
        conv_filters: Filters | None = None,
        conv_activation: str = "relu",
        post_fcnet_hiddens: Sequence[int] | None = None,
        post_fcnet_activation: str = "relu",
        initializer: str = "orthogonal",
        *,
        conv_residual_channels: Sequence[int] | None = None,
        layer_norm: bool = False,
        batch_norm: NormPlace | None = None,
    ) -> None:
        super().__init__()
        self.channels_first = channels_first(shape)
        self.activation = activation_name(conv_activation)
        self.residual = conv_residual_channels is not None
        if conv_filters is not None and conv_residual_channels is not None:
            raise ConfigError(
                "model.conv_filters and model.conv_residual_channels exclude each other: set one of them to null"
            )
        if conv_residual_channels is None:
            layers, flat = _plain_convolutions(shape, conv_filters, initializer)
        else:
            layers, flat = _residual_convolutions(shape, conv_residual_channels, self.activation, initializer)
        self.convolutions = nn.ModuleList(layers)
        hiddens = post_hiddens(shape, post_fcnet_hiddens, conv_filters, conv_residual_channels)
        self.post = MLP(flat, hiddens, post_fcnet_activation, initializer, layer_norm=layer_norm, batch_norm=batch_norm)
        self.size = self.post.size
        """Width of the feature vector."""

    def forward(self, images: Tensor) -> Tensor:
        """`[N, *shape]`, uint8 in 0 … 255 or floats used as they are → `[N, size]`."""
        # Convolutions are fastest with channels last in memory, on a CPU by 1.8 ×; a permuted [N, H, W, C] is so.
        last = torch.channels_last if images.device.type == "cpu" else torch.preserve_format
        x = images if self.channels_first else images.movedim(-1, -3)
        if x.ndim != 4:  # a stack [N, K, C, H, W], or gray values [N, H, W]
            x = x.flatten(1, 2) if x.ndim == 5 else x.unsqueeze(1)
        x = x.to(next(self.parameters()).dtype, memory_format=last)
        if images.dtype == torch.uint8:
            x = x * (1.0 / 255.0)
        activation = ACTIVATIONS[self.activation]
        if self.residual:
            for stack in self.convolutions:
                x = stack(x)
            return self.post(activation(x).flatten(1))
        for layer in self.convolutions:
            assert isinstance(layer, nn.Conv2d)
            padded = layer.pad(x) if isinstance(layer, SameConv2d) else x
            weight = layer.weight.contiguous(memory_format=last) if last == torch.channels_last else layer.weight
            x = activation(F.conv2d(padded, weight, layer.bias, layer.stride))
        return self.post(x.flatten(1))


class VisionNetwork(EncoderModel):
    """An `ImageEncoder` with heads for outputs and values; reads "obs" and never computes "obs_flat".

    Args:
        obs_space, action_space, num_outputs, preprocessor: see `Model`; `num_outputs=0` makes a feature extractor. With
            a custom preprocessor the images are its outputs, of its `shape`.
        conv_filters, conv_residual_channels, post_fcnet_hiddens: see `ImageEncoder`.
        fcnet_weights_initializer: see `initialize`.
        keywords: conv_activation, post_fcnet_activation, layer_norm and batch_norm of `ImageEncoder`; no_final_linear,
            vf_share_layers, free_columns and free_init of `EncoderModel`.
    """

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        num_outputs: int,
        *,
        preprocessor: Preprocessor | None = None,
        conv_filters: Filters | None = None,
        conv_residual_channels: Sequence[int] | None = None,
        fcnet_weights_initializer: str = "orthogonal",
        post_fcnet_hiddens: Sequence[int] | None = None,
        **keywords: Any,
    ) -> None:
        image_shape = preprocessor.shape if preprocessor is not None else obs_space.shape or ()
        convolutions = {"conv_filters": conv_filters, "conv_residual_channels": conv_residual_channels}

        def make_encoder(hiddens: Sequence[int], **layers: Any) -> ImageEncoder:
            return ImageEncoder(image_shape, post_fcnet_hiddens=hiddens, **convolutions, **layers)

        super().__init__(
            obs_space,
            action_space,
            num_outputs,
            make_encoder,
            post_hiddens(image_shape, post_fcnet_hiddens, **convolutions),
            preprocessor=preprocessor,
            initializer=fcnet_weights_initializer,
            **keywords,
        )
        self.preprocessed, self.image_shape = preprocessor is not None, image_shape

    def encoder_inputs(self, input_dict: Mapping[str, Any]) -> Tensor:
        """Images `[N, *]`, in the environment's format."""
        return input_dict["obs_flat"].view(-1, *self.image_shape) if self.preprocessed else input_dict["obs"]


def post_hiddens(
    shape: Sequence[int],
    given: Sequence[int] | None,
    conv_filters: Filters | None,
    conv_residual_channels: Sequence[int] | None,
) -> Sequence[int]:
    """Widths of the layers behind convolutions: the given ones, else the usual ones for these convolutions."""
    if given is not None:
        return given
    if conv_residual_channels is not None:
        return RESIDUAL_POST_HIDDENS
    if conv_filters is not None:
        return ()
    height, width, _ = image_size(shape)
    return (network_for(height, width)[1],)


class SameConv2d(nn.Conv2d):
    """A convolution with zero padding, so that a side becomes side / stride, rounded up; odd zeros go to the far edge.

    RLlib pads all but the last of its `conv_filters` in this way.
    """

    def pad(self, images: Tensor) -> Tensor:
        """Pad images `[N, C, H, W]` with zeros."""
        edges: list[int] = []
        for dim in (1, 0):  # `pad` takes the width first
            side, kernel, stride = images.shape[2 + dim], self.kernel_size[dim], self.stride[dim]
            missing = max((-(-side // stride) - 1) * stride + kernel - side, 0)
            edges += [missing // 2, missing - missing // 2]
        return F.pad(images, edges)


def _plain_convolutions(shape: Sequence[int], given: Filters | None, initializer: str) -> tuple[list[nn.Module], int]:
    """Convolutions without padding for images of `shape`, and the number of outputs of the last."""
    height, width, channels = image_size(shape)
    filters = network_for(height, width)[0] if given is None else given
    layers: list[nn.Module] = []
    for out_channels, kernel, stride, *padding in filters:
        kind = SameConv2d if padding == ["same"] else nn.Conv2d
        layer = kind(channels, out_channels, kernel, stride)
        height, width = (_side_after(side, layer, dim, shape, filters) for dim, side in enumerate((height, width)))
        initialize(layer, initializer)
        layers.append(layer)
        channels = out_channels
    return layers, channels * height * width


def _residual_convolutions(
    shape: Sequence[int], channels: Sequence[int], activation: str, initializer: str
) -> tuple[list[nn.Module], int]:
    """Residual stacks for images of `shape`, and the number of outputs of the last; each halves the sides."""
    if not channels:
        raise ConfigError("model.conv_residual_channels=[] has no stack: give widths, such as [16, 32, 32], or null")
    height, width, first = image_size(shape)
    halved = 2 ** len(channels)
    flat = channels[-1] * math.ceil(height / halved) * math.ceil(width / halved)
    return list(residual_stacks(first, channels, activation, initializer)), flat


def _side_after(side: int, layer: nn.Conv2d, dim: int, shape: Sequence[int], filters: Filters) -> int:
    if isinstance(layer, SameConv2d):
        return -(-side // layer.stride[dim])
    left = (side - layer.kernel_size[dim]) // layer.stride[dim] + 1
    if left < 1:
        raise ConfigError(
            f"conv_filters={[list(entry) for entry in filters]} do not fit images of shape {list(shape)}: kernel "
            f"{layer.kernel_size[dim]} meets a side of {side}; use smaller kernels or strides, or fewer layers"
        )
    return left
