"""RLlib's base of recurrent models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from lightning_rl.models.recurrent import RecurrentModel
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2

__all__ = ["RecurrentNetwork"]


class RecurrentNetwork(TorchModelV2):
    """A model that reads sequences: a subclass defines `forward_rnn`, `get_initial_state` and `value_function`.

    Args: as `TorchModelV2`.
    """

    time_major = False
    features = RecurrentModel.features
    forward_rnn = RecurrentModel.forward_rnn

    def forward(
        self: Any, input_dict: Mapping[str, Any], state: Sequence[Tensor] = (), seq_lens: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Outputs `[S · L, num_outputs]` of `forward_rnn`, and the state after the last step."""
        return RecurrentModel.forward(self, input_dict, state, seq_lens)
