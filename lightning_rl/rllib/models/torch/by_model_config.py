"""What RLlib's names of the built-in networks have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gymnasium import Space
from torch import Tensor, nn

from lightning_rl.models.model import InputDict, Model
from lightning_rl.schema.signatures import keywords_of

__all__ = ["ByModelConfig"]


class ByModelConfig(Model):
    """Put before a network of this package, it gives the network RLlib's constructor.

    Args:
        obs_space, action_space: the spaces of a single environment.
        num_outputs: width of the outputs; `None`: the last hidden layer is the output, and a layer of its own computes
            values of it.
        model_config: RLlib's keys of the model.
        name: the name of the model; `None`: `default_name`.
    """

    network: ClassVar[type[Model]]
    default_name: ClassVar[str]

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        num_outputs: int | None,
        model_config: Mapping[str, Any],
        name: str | None = None,
    ) -> None:
        taken = keywords_of(self.network)
        settings = {key: value for key, value in model_config.items() if key in taken}
        super().__init__(obs_space, action_space, num_outputs or 0, **settings)
        self.model_config, self.name = model_config, self.default_name if name is None else name
        self.value_branch = nn.Linear(self.num_outputs, 1) if num_outputs is None else None

    def forward(
        self, input_dict: Mapping[str, Any], state: Sequence[Tensor] = (), seq_lens: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Outputs `[N, num_outputs]` of "obs", of which "obs_flat" is computed where it is missing."""
        if not isinstance(input_dict, InputDict) and "obs_flat" not in input_dict:
            input_dict = InputDict(self.preprocessor.transform_batch, **input_dict)
        outputs, state = super().forward(input_dict, state, seq_lens)
        self._outputs = outputs
        return outputs, state

    def value_function(self) -> Tensor:
        """V of the rows of the last forward, `[N]`."""
        return super().value_function() if self.value_branch is None else self.value_branch(self._outputs).squeeze(1)
