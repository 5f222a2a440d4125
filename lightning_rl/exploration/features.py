"""Feature networks for observations of any space, independent of the policy's network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import torch.nn.functional as F
from gymnasium import Space
from torch import Tensor, nn

from lightning_rl.errors import ConfigError
from lightning_rl.fast_torch import lean_linear
from lightning_rl.models.catalog import ModelCatalog, ModelConfig, model_config
from lightning_rl.schema.signatures import Section

__all__ = ["Features", "NetworkOptions"]

NetworkOptions = Annotated[
    Mapping[str, Any], Section("", (ModelConfig,))
]  # keys of a model config, the value of a key of an exploration strategy


class Features(nn.Module):
    """A model of the catalog without heads, followed by a linear layer: a feature vector per observation.

    Args:
        observation_space: space of a single environment's observations.
        action_space: the action space of the policy (models require one).
        size: entries of the vector.
        network: keys of the model config that differ from its defaults.
        key: the config key that `network` came from, for messages.
        normalize: normalize features to mean 0 and deviation 1, so that their scale stays constant during learning.

    Raises:
        ConfigError: a key is unknown, or the model has memory.
    """

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        size: int,
        network: Mapping[str, Any] | None,
        key: str,
        *,
        normalize: bool = False,
    ) -> None:
        super().__init__()
        config = model_config(network)
        width = 0 if config["custom_model"] is None else size
        self.model = ModelCatalog.get_model(observation_space, action_space, width, config)
        if self.model.get_initial_state():
            raise ConfigError(
                f"exploration.{key}: {type(self.model).__name__} has memory, and novelty is judged step by step: "
                "choose a feed-forward model"
            )
        self.linear = nn.Linear(self.model.num_outputs, size)
        self.size, self.normalize = size, normalize

    def forward(self, inputs: Mapping[str, Any]) -> Tensor:
        """Features `[N, size]` for a model's inputs."""
        features, _ = self.model(inputs, (), None)
        vectors = lean_linear(self.linear, features)
        return F.layer_norm(vectors, (self.size,)) if self.normalize else vectors
