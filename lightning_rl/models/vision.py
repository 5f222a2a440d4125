"""Convolutional networks for images; uint8 pixels stay uint8 until they are on the network's device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from gymnasium import Space, spaces
from torch import Tensor, nn

from lightning_rl.errors import ConfigError
from lightning_rl.models.layers import ACTIVATIONS, MLP, ActionHead, ValueHead, activation_named, initialise
from lightning_rl.models.model import LastForward, Model
from lightning_rl.models.preprocessors import Preprocessor

__all__ = ["NATURE_FILTERS", "ImageEncoder", "VisionNetwork", "filters_for", "is_image"]

Filters = Sequence[Sequence[Any]]

NATURE_FILTERS: Filters = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # Mnih et al. 2015, doi:10.1038/nature14236
# Smallest image side → filters; the last entry is the largest side that is served.
FILTERS_BY_SIDE: tuple[tuple[int, Filters], ...] = (
    (8, ((32, 3, 1), (64, 3, 1))),
    (16, ((32, 4, 2), (64, 3, 2), (64, 3, 1))),
    (36, NATURE_FILTERS),
)
SMALLEST_SIDE, LARGEST_SIDE = FILTERS_BY_SIDE[0][0], 128
DEFAULT_POST_HIDDENS = (512,)  # the Nature network's fully connected layer


def is_image(space: Space[Any]) -> bool:
    """Whether the default model sees a picture: a Box of 3 dimensions, both sides at least 8 pixels."""
    return isinstance(space, spaces.Box) and len(space.shape) == 3 and min(image_size(space.shape)[:2]) >= SMALLEST_SIDE


def channels_first(shape: Sequence[int]) -> bool:
    """Whether the channels come first: two equal sides are the picture's, else the shorter end is the channels."""
    if (shape[0] == shape[1]) != (shape[1] == shape[2]):
        return shape[1] == shape[2]
    return shape[0] < shape[2]


def image_size(shape: Sequence[int]) -> tuple[int, int, int]:
    """(height, width, channels) of an image shape, whichever way round it is."""
    return (shape[1], shape[2], shape[0]) if channels_first(shape) else (shape[0], shape[1], shape[2])


def filters_for(height: int, width: int) -> Filters:
    """`[out channels, kernel, stride]` of each convolution for an image of that size.

    Raises:
        ConfigError: none fit; the message says what to do.
    """
    side = min(height, width)
    if side < SMALLEST_SIDE or max(height, width) > LARGEST_SIDE:
        raise ConfigError(
            f"no built-in convolutions for {height}×{width} images (sides of {SMALLEST_SIDE} to {LARGEST_SIDE} have "
            "them): "
            "set model.conv_filters=[[out_channels, kernel, stride], …], or resize in a wrapper (Atari: "
            "AtariPreprocessing gives 84×84)"
        )
    return next(filters for smallest, filters in reversed(FILTERS_BY_SIDE) if side >= smallest)


class ImageEncoder(nn.Module):
    """Convolutions and fully connected layers: an image in, a feature vector out.

    Args:
        shape: of one image, `[H, W, C]` or `[C, H, W]`.
        conv_filters: `[out channels, kernel, stride]` of each convolution (without padding); `None` finds them for the
            size.
        conv_activation: of the convolutions; one of `ACTIVATIONS`.
        post_fcnet_hiddens: widths of the layers after them; `None`: 512 behind found filters, none behind given ones.
        post_fcnet_activation: of these.
        initializer: as in `initialise`.

    Raises:
        ConfigError: no filters fit the size, or the given ones shrink the image to nothing.
    """

    def __init__(
        self,
        shape: Sequence[int],
        conv_filters: Filters | None = None,
        conv_activation: str = "relu",
        post_fcnet_hiddens: Sequence[int] | None = None,
        post_fcnet_activation: str = "relu",
        initializer: str = "orthogonal",
    ) -> None:
        super().__init__()
        self.channels_first = channels_first(shape)
        self.activation = activation_named(conv_activation, "conv_activation")
        height, width, channels = image_size(shape)
        filters = filters_for(height, width) if conv_filters is None else conv_filters
        convolutions = []
        for out_channels, kernel, stride in filters:
            layer = nn.Conv2d(channels, out_channels, _pair(kernel), _pair(stride))
            height, width = (_shrunk(side, layer, dim, shape, filters) for dim, side in enumerate((height, width)))
            initialise(layer, initializer, math.sqrt(2) if initializer == "orthogonal" else 1.0)
            convolutions.append(layer)
            channels = out_channels
        self.convolutions = nn.ModuleList(convolutions)
        if post_fcnet_hiddens is None:
            post_fcnet_hiddens = DEFAULT_POST_HIDDENS if conv_filters is None else ()
        self.post = MLP(
            channels * height * width,
            post_fcnet_hiddens,
            activation_named(post_fcnet_activation, "post_fcnet_activation"),
            initializer,
        )
        self.size = self.post.size
        """Width of the feature vector."""

    def forward(self, images: Tensor) -> Tensor:
        """`[N, *shape]`, uint8 in 0 … 255 or floats used as they are → `[N, size]`."""
        first = self.convolutions[0]
        assert isinstance(first, nn.Conv2d)
        x = images.to(first.weight.dtype)
        if images.dtype == torch.uint8:
            x = x * (1.0 / 255.0)
        # A permuted [N, H, W, C] already lies in memory as channels_last, which convolutions like best.
        x = x if self.channels_first else x.permute(0, 3, 1, 2)
        activation = ACTIVATIONS[self.activation]
        for layer in self.convolutions:
            assert isinstance(layer, nn.Conv2d)
            x = activation(F.conv2d(x, layer.weight, layer.bias, layer.stride))
        return self.post(x.flatten(1))


class VisionNetwork(Model):
    """An `ImageEncoder` with heads for outputs and values; reads "obs" and never makes "obs_flat".

    Args:
        obs_space, action_space, num_outputs, preprocessor: as `Model`; `num_outputs=0` makes a feature extractor. With
            a custom preprocessor the images are what it makes, of its `shape`.
        conv_filters, conv_activation, post_fcnet_hiddens, post_fcnet_activation: as `ImageEncoder`.
        fcnet_weights_initializer: as `initialise`.
        vf_share_layers: one encoder for policy and value, instead of one each.
        free_columns, free_init: as `ActionHead`.
    """

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        num_outputs: int,
        *,
        preprocessor: Preprocessor | None = None,
        conv_filters: Filters | None = None,
        conv_activation: str = "relu",
        fcnet_weights_initializer: str = "orthogonal",
        post_fcnet_hiddens: Sequence[int] | None = None,
        post_fcnet_activation: str = "relu",
        vf_share_layers: bool = False,
        free_columns: Sequence[int] = (),
        free_init: float = 0.0,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, preprocessor=preprocessor)
        self.preprocessed = preprocessor is not None
        self.image_shape = preprocessor.shape if preprocessor is not None else obs_space.shape or ()
        if len(self.image_shape) != 3:
            raise ConfigError(
                f"VisionNetwork needs images of shape [H, W, C] or [C, H, W], got {list(self.image_shape)}: leave "
                "conv_filters out"
            )
        layers = (conv_filters, conv_activation, post_fcnet_hiddens, post_fcnet_activation, fcnet_weights_initializer)
        self.encoder = ImageEncoder(self.image_shape, *layers)
        size = self.encoder.size
        self.head = (
            ActionHead(size, num_outputs, fcnet_weights_initializer, free_columns, free_init) if num_outputs else None
        )
        self.num_outputs = num_outputs or size
        self.value_encoder = None if vf_share_layers else ImageEncoder(self.image_shape, *layers)
        self.value_head = ValueHead(size, fcnet_weights_initializer)
        self._last = LastForward()

    def forward(
        self, input_dict: Mapping[str, Any], state: Sequence[Tensor] = (), seq_lens: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Outputs `[N, num_outputs]` of the images; the value's own encoder runs when it is asked for."""
        images = input_dict["obs_flat"].view(-1, *self.image_shape) if self.preprocessed else input_dict["obs"]
        features = self.encoder(images)
        self._last.features = features if self.value_encoder is None else images
        return (features if self.head is None else self.head(features)), list(state)

    def value_function(self) -> Tensor:
        """Values `[N]` of the last forward."""
        last = self._last.get()
        return self.value_head(last if self.value_encoder is None else self.value_encoder(last))


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    height, width = (value, value) if isinstance(value, int) else value
    return height, width


def _shrunk(side: int, layer: nn.Conv2d, dim: int, shape: Sequence[int], filters: Filters) -> int:
    left = (side - layer.kernel_size[dim]) // layer.stride[dim] + 1
    if left < 1:
        raise ConfigError(
            f"conv_filters={[list(entry) for entry in filters]} do not fit images of shape {list(shape)}: kernel "
            f"{layer.kernel_size[dim]} meets a "
            f"side of {side}; use smaller kernels or strides, or fewer layers"
        )
    return left
