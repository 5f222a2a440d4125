"""The default model for Dict and Tuple observations that hold an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor, nn

from lightning_rl.models.encoder_model import EncoderModel
from lightning_rl.models.layers import MLP
from lightning_rl.models.preprocessors import NestedPreprocessor
from lightning_rl.models.vision import Filters, ImageEncoder, image_paths
from lightning_rl.spaces import leaf_spaces, leaf_values

__all__ = ["ComplexInputNetwork"]

PARTS_POST_HIDDENS = (256,)


class ComplexInputNetwork(EncoderModel):
    """Encodes each part of the observation by itself, concatenates the features, and applies shared layers.

    Images are read from "obs" and keep their dtype until they are on the device; all other parts are read from
    "obs_flat", which contains no images here. So an observation filter normalizes vectors only, never pixels.

    Args:
        obs_space, action_space, num_outputs: see `Model`; `num_outputs=0` makes a feature extractor.
        fcnet_hiddens: widths of the layers of each part that is not an image (discrete parts are one-hot vectors).
        fcnet_activation: activation of these layers.
        fcnet_weights_initializer: see `initialize`.
        conv_filters, conv_activation, conv_residual_channels: see `ImageEncoder`, for each image; after default filters
            and residual stacks, each image has a separate fully connected layer, with `conv_activation`.
        post_fcnet_hiddens: widths of the layers after all parts; `None`: 256. With an empty list, the outputs are sums
            of one linear function per part.
        post_fcnet_activation: activation of these layers.
        keywords: layer_norm and batch_norm of `MLP`, in all fully connected layers; no_final_linear, vf_share_layers,
            free_columns and free_init of `EncoderModel`.

    Raises:
        ConfigError: convolutions do not fit an image.
    """

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        num_outputs: int,
        *,
        fcnet_hiddens: Sequence[int] = (64, 64),
        fcnet_activation: str = "tanh",
        fcnet_weights_initializer: str = "orthogonal",
        conv_filters: Filters | None = None,
        conv_activation: str = "relu",
        conv_residual_channels: Sequence[int] | None = None,
        post_fcnet_hiddens: Sequence[int] | None = None,
        post_fcnet_activation: str = "relu",
        **keywords: Any,
    ) -> None:
        images = image_paths(obs_space, conv_filters is not None or conv_residual_channels is not None)
        preprocessor = NestedPreprocessor(obs_space, skipped=images)
        picture: dict[str, Any] = {
            "conv_filters": conv_filters,
            "conv_activation": conv_activation,
            "conv_residual_channels": conv_residual_channels,
            "post_fcnet_activation": conv_activation,
        }

        def make_encoder(hiddens: Sequence[int], **settings: Any) -> PartsEncoder:
            parts = [
                ImageEncoder(leaf.shape or (), **picture, **settings)
                if path in images
                else MLP(preprocessor.parts[path].size, fcnet_hiddens, fcnet_activation, **settings)
                for path, leaf in leaf_spaces(obs_space)
            ]
            size = sum(part.size for part in parts)
            return PartsEncoder(parts, MLP(size, hiddens, post_fcnet_activation, **settings))

        super().__init__(
            obs_space,
            action_space,
            num_outputs,
            make_encoder,
            PARTS_POST_HIDDENS if post_fcnet_hiddens is None else post_fcnet_hiddens,
            preprocessor=preprocessor,
            initializer=fcnet_weights_initializer,
            **keywords,
        )
        self.widths = [part.size for part in preprocessor.parts.values()]
        self.from_flat = [path in preprocessor.parts for path, _ in leaf_spaces(obs_space)]

    def encoder_inputs(self, input_dict: Mapping[str, Any]) -> list[Tensor]:
        """One tensor per part, in the space's own order: images `[N, *]`, columns `[N, width]` of "obs_flat"."""
        leaves = leaf_values(self.obs_space, input_dict["obs"])
        columns = iter(input_dict["obs_flat"].split(self.widths, dim=1) if self.widths else ())
        return [next(columns) if flat else leaf for flat, leaf in zip(self.from_flat, leaves, strict=True)]


class PartsEncoder(nn.Module):
    """Encoders side by side, and layers on their concatenated features.

    Args:
        parts: one encoder per part of the observation.
        post: the layers on the concatenated features.
    """

    def __init__(self, parts: Sequence[ImageEncoder | MLP], post: MLP) -> None:
        super().__init__()
        self.parts, self.post = nn.ModuleList(parts), post
        self.size = post.size
        """Width of the output."""

    def forward(self, values: Sequence[Tensor]) -> Tensor:
        """One tensor `[N, …]` per part → `[N, size]`."""
        return self.post(torch.cat([part(value) for part, value in zip(self.parts, values, strict=True)], dim=1))
