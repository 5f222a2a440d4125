"""The default model for everything that is not an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium import Space
from torch import Tensor

from lightning_rl.models.batch_norm import NormPlace
from lightning_rl.models.layers import MLP, ActionHead, ValueHead, activation_name
from lightning_rl.models.model import LastForward, Model
from lightning_rl.models.preprocessors import Preprocessor
from lightning_rl.models.simba import ResidualMLP

__all__ = ["FullyConnectedNetwork"]


class FullyConnectedNetwork(Model):
    """An MLP from "obs_flat" to outputs and values.

    Args:
        obs_space, action_space, num_outputs, preprocessor: as `Model`; `num_outputs=0` makes a feature extractor that
            returns the last hidden layer (`num_outputs` is then its width) and has no values.
        fcnet_hiddens: widths of the hidden layers.
        fcnet_activation: of these layers; one of `ACTIVATIONS`.
        fcnet_weights_initializer: "orthogonal" (gain √2, heads 0.01 and 1), "normc" (1, heads 0.01), or "default"
            (PyTorch's).
        post_fcnet_hiddens: widths of more layers, with another activation.
        post_fcnet_activation: of these.
        no_final_linear: the last hidden layer is the output, with its activation: its width becomes `num_outputs`.
        vf_share_layers: the value is a linear function of the policy's last hidden layer, instead of a network of its
            own.
        fcnet_residual: `ResidualMLP` instead of `MLP`.
        layer_norm, batch_norm: as `MLP`.
        free_columns, free_init: outputs that are learned numbers, see `ActionHead`.
    """

    forbids_actions = False

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
        vf_share_layers: bool = False,
        layer_norm: bool = False,
        batch_norm: NormPlace | None = None,
        free_columns: Sequence[int] = (),
        free_init: float = 0.0,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, preprocessor=preprocessor)
        post = list(post_fcnet_hiddens or ())
        hiddens = [*fcnet_hiddens, *post]
        activations = [activation_name(fcnet_activation, "fcnet_activation")] * len(fcnet_hiddens)
        activations += [activation_name(post_fcnet_activation, "post_fcnet_activation")] * len(post)
        size, initializer = self.preprocessor.size, fcnet_weights_initializer
        policy_hiddens = (
            [*hiddens[:-1], num_outputs - len(free_columns)] if no_final_linear and num_outputs and hiddens else hiddens
        )

        def layers(widths: Sequence[int]) -> MLP | ResidualMLP:
            if fcnet_residual:
                return ResidualMLP(size, widths, fcnet_activation)
            return MLP(size, widths, activations, initializer, layer_norm=layer_norm, batch_norm=batch_norm)

        self.trunk = layers(policy_hiddens)
        final = num_outputs and not (no_final_linear and hiddens)
        self.head = (
            ActionHead(self.trunk.size, num_outputs, initializer, free_columns, free_init, linear=bool(final))
            if num_outputs
            else None
        )
        own_values = num_outputs > 0 and not vf_share_layers
        self.value_trunk = layers(hiddens) if own_values else None
        self.value_head = ValueHead((self.value_trunk or self.trunk).size, initializer) if num_outputs else None
        self.values_are_cheap = num_outputs > 0 and vf_share_layers
        self.num_outputs = num_outputs or self.trunk.size
        self._last = LastForward()

    def forward(
        self, input_dict: Mapping[str, Any], state: Sequence[Tensor] = (), seq_lens: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Outputs `[N, num_outputs]` from "obs_flat"; a separate value network runs only in `value_function`."""
        obs_flat = input_dict["obs_flat"]
        features = self.trunk(obs_flat)
        self._last.features = features if self.value_trunk is None else obs_flat
        return (features if self.head is None else self.head(features)), list(state)

    def value_function(self) -> Tensor:
        """Values `[N]` of the last forward."""
        if self.value_head is None:
            return super().value_function()  # an error: a feature extractor has no values
        last = self._last.get()
        return self.value_head(last if self.value_trunk is None else self.value_trunk(last))
