"""RLlib's preprocessors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def get_preprocessor(space: Space[Any]) -> type[preprocessors.Preprocessor]:
    """The class of the built-in preprocessor of a space."""
    return type(preprocessors.make_preprocessor(space))
