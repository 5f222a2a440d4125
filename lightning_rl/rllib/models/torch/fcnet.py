"""RLlib's fully connected network."""

from __future__ import annotations

from lightning_rl.models import fully_connected
from lightning_rl.rllib.models.torch.by_model_config import ByModelConfig

__all__ = ["FullyConnectedNetwork"]


class FullyConnectedNetwork(ByModelConfig, fully_connected.FullyConnectedNetwork):
    """The fully connected network, by RLlib's constructor. See `ByModelConfig`."""

    network, default_name = fully_connected.FullyConnectedNetwork, "fcnet"
