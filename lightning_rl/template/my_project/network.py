"""A network with its own loss, which is added to the policy's."""

from __future__ import annotations

from typing import Any

import torch
from lightning_rl.models import Model


class Network(Model):
    """Two layers for actions and values.

    Args:
        width: units of the hidden layer; `model.custom_model_config.width`.
        keywords: arguments of every model.
    """

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, *, width: int = 32, **keywords: Any
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, **keywords)
        self.body = torch.nn.Sequential(torch.nn.Linear(self.preprocessor.size, width), torch.nn.Tanh())
        self.outputs, self.values = torch.nn.Linear(width, num_outputs), torch.nn.Linear(width, 1)

    def forward(
        self, input_dict: Any, state: Any = (), seq_lens: Any = None
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Outputs `[N, num_outputs]`, of which the policy makes its action distribution."""
        self.features = self.body(input_dict["obs_flat"])
        return self.outputs(self.features), []

    def value_function(self) -> torch.Tensor:
        """Values `[N]` of the observations of the last `forward`."""
        return self.values(self.features).squeeze(1)

    def custom_loss(self, policy_loss: Any, loss_inputs: Any) -> torch.Tensor:
        """The policy's loss and a penalty on large features; `loss_inputs` are the rows of the minibatch."""
        self.penalty = 1e-4 * self.features.square().mean()
        return policy_loss + self.penalty

    def metrics(self) -> dict[str, torch.Tensor | float]:
        """Logged as train/model/feature_penalty."""
        return {"feature_penalty": self.penalty.detach()} if hasattr(self, "penalty") else {}
