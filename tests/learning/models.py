"""Custom models that add to the loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lightning_rl.models.fully_connected import FullyConnectedNetwork
from lightning_rl.sample_batch import SampleBatch


class AuxiliaryLoss(FullyConnectedNetwork):
    """Parameters p and q occur only in the custom loss p² + 3q, whose gradients are 2p and 3."""

    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, *, form: str = "list", **keywords: Any):
        super().__init__(obs_space, action_space, num_outputs, **keywords)
        self.p, self.q = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.tensor(1.0))
        self.form = form
        self.given: list[tuple[Tensor, SampleBatch]] = []

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> Any:
        self.given.append((policy_loss.detach(), loss_inputs))
        self.auxiliary = self.p.square()
        if self.form == "list":
            return [policy_loss, self.auxiliary, 3 * self.q]
        return policy_loss + self.auxiliary + 3 * self.q

    def metrics(self) -> dict[str, Any]:
        return {"auxiliary": self.auxiliary, "constant": 0.25}
