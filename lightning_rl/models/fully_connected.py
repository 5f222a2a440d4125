"""The default model for everything that is not an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium import Space

from lightning_rl.models.encoder_model import EncoderModel
from lightning_rl.models.layers import MLP
from lightning_rl.models.preprocessors import Preprocessor, make_preprocessor
from lightning_rl.models.simba import ResidualMLP

__all__ = ["FullyConnectedNetwork", "hidden_layers"]


def hidden_layers(residual: bool, *layers: Any, **settings: Any) -> MLP | ResidualMLP:
    """A `ResidualMLP` or an `MLP` of an input's width, hidden widths and activations; `settings` are the MLP's."""
    return ResidualMLP(*layers) if residual else MLP(*layers, **settings)


class FullyConnectedNetwork(EncoderModel):
    """An MLP from "obs_flat" to outputs and values.

    Args:
        obs_space, action_space, num_outputs, preprocessor: see `Model`; `num_outputs=0` makes a feature extractor that
            returns the last hidden layer (`num_outputs` is then its width) and has no values.
        fcnet_hiddens: widths of the hidden layers.
        fcnet_activation: activation of these layers; one of `ACTIVATIONS`.
        fcnet_weights_initializer: "orthogonal" (gain √2, heads 0.01 and 1), "normc" (1, heads 0.01), or "default"
            (PyTorch's).
        post_fcnet_hiddens: widths of further layers with a different activation.
        post_fcnet_activation: activation of these layers.
        fcnet_residual: use `ResidualMLP` instead of `MLP`.
        no_final_linear: use the last hidden layer, with its activation, as the output; without hidden layers, there is
            a linear layer.
        keywords: layer_norm and batch_norm of `MLP`; vf_share_layers, free_columns and free_init of `EncoderModel`.
    """

    names = ("trunk", "value_trunk")

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        num_outputs: int,
        *,
        preprocessor: Preprocessor | None = None,
        fcnet_hiddens: Sequence[int] = (64, 64),
        fcnet_activation: str = "tanh",
        fcnet_weights_initializer: str = "orthogonal",
        fcnet_residual: bool = False,
        post_fcnet_hiddens: Sequence[int] | None = None,
        post_fcnet_activation: str = "relu",
        no_final_linear: bool = False,
        **keywords: Any,
    ) -> None:
        preprocessor = make_preprocessor(obs_space) if preprocessor is None else preprocessor
        post = list(post_fcnet_hiddens or ())
        each = [fcnet_activation] * len(fcnet_hiddens) + [post_fcnet_activation] * len(post)
        activations = fcnet_activation if fcnet_residual else each

        def make_trunk(hiddens: Sequence[int], **settings: Any) -> MLP | ResidualMLP:
            return hidden_layers(fcnet_residual, preprocessor.size, hiddens, activations, **settings)

        hiddens = [*fcnet_hiddens, *post]
        super().__init__(
            obs_space,
            action_space,
            num_outputs,
            make_trunk,
            hiddens,
            preprocessor=preprocessor,
            initializer=fcnet_weights_initializer,
            no_final_linear=no_final_linear and bool(hiddens),
            **keywords,
        )
