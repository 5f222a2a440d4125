"""RLlib's base of models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import Space

from lightning_rl.models.model import Model
from lightning_rl.models.preprocessors import make_preprocessor

__all__ = ["TorchModelV2"]


class TorchModelV2:
    """All of a `Model` but the module: mixed with `nn.Module` in either order, both constructors called by the class.

    Args:
        obs_space, action_space: of one environment.
        num_outputs: width of the outputs.
        model_config: the whole of it.
        name: that it was registered under.
    """

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        num_outputs: int,
        model_config: Mapping[str, Any],
        name: str,
    ) -> None:
        self.obs_space, self.action_space, self.num_outputs = obs_space, action_space, num_outputs
        self.model_config, self.name, self.preprocessor = model_config, name, make_preprocessor(obs_space)


for _name, _member in vars(Model).items():  # every default of a model, those that will be added among them
    if not _name.startswith("_"):
        setattr(TorchModelV2, _name, _member)
