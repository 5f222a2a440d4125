"""RLlib's network of observations with several parts."""

from __future__ import annotations

from lightning_rl.models import complex_input
from lightning_rl.rllib.models.torch.by_model_config import ByModelConfig

__all__ = ["ComplexInputNetwork"]


class ComplexInputNetwork(ByModelConfig, complex_input.ComplexInputNetwork):
    """The network of Dict and Tuple observations, by RLlib's constructor. See `ByModelConfig`."""

    network, default_name = complex_input.ComplexInputNetwork, "complexinputnet"
