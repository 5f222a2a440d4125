"""Base class of models with an encoder: adds heads for outputs and values, with a shared or a second encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from gymnasium import Space
from torch import Tensor, nn

from lightning_rl.errors import ConfigError
from lightning_rl.models.layers import ActionHead, ValueHead
from lightning_rl.models.model import Model
from lightning_rl.models.preprocessors import Preprocessor

__all__ = ["EncoderModel"]


class EncoderModel(Model):
    """An encoder with heads for outputs and values; a subclass may define another input in `encoder_inputs`.

    Args:
        obs_space, action_space, num_outputs, preprocessor: see `Model`; `num_outputs=0` makes a feature extractor that
            returns the encoder's output (`num_outputs` is then its width) and has no values.
        make_encoder: function of widths and the keywords `initializer` and `layers`, which returns a module whose last
            layers have these widths, with its output width as `size`.
        post_fcnet_hiddens: widths of the encoder's last layers.
        initializer: initializer of all layers, see `initialize`.
        no_final_linear: use the last of these layers, with its activation, as the output; its width becomes
            `num_outputs`.
        vf_share_layers: use one encoder for policy and value instead of two.
        free_columns, free_init: see `ActionHead`.
        layers: further settings of the encoder.

    Attributes:
        names: the names of the encoder, and of the values' own one, among the modules.

    Raises:
        ConfigError: `no_final_linear` with no layer that could be the output.
    """

    names: ClassVar[tuple[str, str]] = ("encoder", "value_encoder")

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        num_outputs: int,
        make_encoder: Callable[..., nn.Module],
        post_fcnet_hiddens: Sequence[int],
        *,
        preprocessor: Preprocessor | None = None,
        initializer: str = "orthogonal",
        no_final_linear: bool = False,
        vf_share_layers: bool = False,
        free_columns: Sequence[int] = (),
        free_init: float = 0.0,
        **layers: Any,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, preprocessor=preprocessor)
        hiddens, straight = list(post_fcnet_hiddens), no_final_linear and num_outputs > 0
        if straight and not hiddens:
            raise ConfigError(
                "model.no_final_linear=true makes the last of post_fcnet_hiddens the output, and there is none: set "
                "model.post_fcnet_hiddens, or no_final_linear=false"
            )
        layers["initializer"] = initializer
        widths = [*hiddens[:-1], num_outputs - len(free_columns)] if straight else hiddens
        encoder: Any = make_encoder(widths, **layers)
        setattr(self, self.names[0], encoder)
        self.head = (
            ActionHead(encoder.size, num_outputs, initializer, free_columns, free_init, linear=not straight)
            if num_outputs
            else None
        )
        value_encoder: Any = make_encoder(hiddens, **layers) if num_outputs and not vf_share_layers else None
        setattr(self, self.names[1], value_encoder)
        self.value_head = ValueHead((value_encoder or encoder).size, initializer) if num_outputs else None
        self.values_are_cheap = num_outputs > 0 and vf_share_layers
        self.num_outputs = num_outputs or encoder.size

    def encoder_inputs(self, input_dict: Mapping[str, Any]) -> Any:
        """The input of the encoder; here the preprocessed observations, `[N, size]`."""
        return input_dict["obs_flat"]

    def forward(
        self, input_dict: Mapping[str, Any], state: Sequence[Tensor] = (), seq_lens: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Outputs `[N, num_outputs]`; a separate encoder for values runs only in `value_function`."""
        encoder, value_encoder = self.names
        read = self.encoder_inputs(input_dict)
        features = getattr(self, encoder)(read)
        self._last.features = features if getattr(self, value_encoder) is None else read
        return (features if self.head is None else self.head(features)), list(state)

    def value_function(self) -> Tensor:
        """Values `[N]` of the last forward."""
        if self.value_head is None:
            return super().value_function()  # an error: a feature extractor has no values
        last, encoder = self._last.get(), getattr(self, self.names[1])
        return self.value_head(last if encoder is None else encoder(last))
