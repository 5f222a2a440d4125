"""RLlib's preprocessors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space

from lightning_rl.models import preprocessors
from lightning_rl.models.preprocessors import NestedPreprocessor as DictFlatteningPreprocessor
from lightning_rl.models.preprocessors import NestedPreprocessor as TupleFlatteningPreprocessor
from lightning_rl.models.preprocessors import NoPreprocessor, OneHotPreprocessor

__all__ = [
    "DictFlatteningPreprocessor",
    "NoPreprocessor",
    "OneHotPreprocessor",
    "Preprocessor",
    "TupleFlatteningPreprocessor",
    "get_preprocessor",
]


class Preprocessor(preprocessors.Preprocessor):
    """The base of custom preprocessors, whose `options` also have RLlib's "custom_options".

    Args: as `lightning_rl.models.Preprocessor`.
    """

    def __init__(self, obs_space: Space[Any], options: Mapping[str, Any] | None = None) -> None:
        options = dict(options or {})
        super().__init__(obs_space, {**options, "custom_options": dict(options.get("custom_model_config") or {})})

    def write(self, observation: Any, array: np.ndarray, offset: int) -> None:
        """Write the vector of an observation into `array`, from `offset` on."""
        array[offset : offset + self.size] = np.ravel(self.transform(observation))

    def check_shape(self, observation: Any) -> None:
        """Check that an observation is in the space.

        Raises:
            ValueError: it is not.
        """
        if not self.obs_space.contains(observation):
            raise ValueError(f"observation {observation!r} is outside of {self.obs_space}")


def get_preprocessor(space: Space[Any]) -> type[preprocessors.Preprocessor]:
    """The class of the built-in preprocessor of a space."""
    return type(preprocessors.make_preprocessor(space))
