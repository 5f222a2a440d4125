"""RLlib's fully connected network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium import Space
from torch import Tensor

from lightning_rl.models import fully_connected
from lightning_rl.models.model import InputDict
from lightning_rl.schema.signatures import keywords_of

__all__ = ["FullyConnectedNetwork"]


class FullyConnectedNetwork(fully_connected.FullyConnectedNetwork):
    """The fully connected network, by RLlib's constructor.

    Args:
        obs_space, action_space: of one environment.
        num_outputs: width of the outputs; `None`: the last hidden layer is the output.
        model_config: RLlib's keys of the model.
        name: of the model.
    """

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        num_outputs: int | None,
        model_config: Mapping[str, Any],
        name: str = "fcnet",
    ) -> None:
        taken = keywords_of(fully_connected.FullyConnectedNetwork)
        settings = {key: value for key, value in model_config.items() if key in taken}
        super().__init__(obs_space, action_space, num_outputs or 0, **settings)
        self.model_config, self.name = model_config, name

    def forward(
        self, input_dict: Mapping[str, Any], state: Sequence[Tensor] = (), seq_lens: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Outputs `[N, num_outputs]` of "obs", of which "obs_flat" is computed where it is missing."""
        if not isinstance(input_dict, InputDict) and "obs_flat" not in input_dict:
            input_dict = InputDict(self.preprocessor.transform_batch, **input_dict)
        return super().forward(input_dict, state, seq_lens)
