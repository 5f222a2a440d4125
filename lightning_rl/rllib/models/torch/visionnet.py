"""RLlib's convolutional network."""

from __future__ import annotations

from lightning_rl.models import vision
from lightning_rl.rllib.models.torch.by_model_config import ByModelConfig

__all__ = ["VisionNetwork"]


class VisionNetwork(ByModelConfig, vision.VisionNetwork):
    """The convolutional network, by RLlib's constructor. See `ByModelConfig`."""

    network, default_name = vision.VisionNetwork, "visionnet"
