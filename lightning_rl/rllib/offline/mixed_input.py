"""Several sources of experience, drawn from by chance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lightning_rl.errors import ConfigError
from lightning_rl.rllib.offline.input_reader import InputReader
from lightning_rl.rllib.offline.io_context import IOContext
from lightning_rl.rllib.offline.json_reader import JsonReader
from lightning_rl.rllib.offline.registry import registered_input

__all__ = ["MixedInput"]


class MixedInput(InputReader):
    """Each batch is of one source, which is drawn by its probability.

    Args:
        dist: source → probability, together 1. A source is "sampler" (the workers' own experience), what `JsonReader`
            takes, the name of `register_input`, or a function `context -> InputReader`.
        ioctx: the context of the sources.

    Raises:
        ConfigError: the probabilities do not sum to 1.
    """

    def __init__(self, dist: Mapping[Any, float], ioctx: IOContext) -> None:
        if not dist or min(dist.values()) < 0 or not math.isclose(sum(dist.values()), 1.0, abs_tol=1e-6):
            raise ConfigError(f"input={dict(dist)!r}; expected probabilities of sources that sum to 1")
        self.choices = [self._source(source, ioctx) for source in dist]
        self.p = np.array([*dist.values()]) / sum(dist.values())
        self._generator = np.random.default_rng([ioctx.config.get("seed") or 0, ioctx.worker_index, 1])

    def next(self) -> Any:
        """A batch of the source that is drawn."""
        return self.choices[self._generator.choice(len(self.choices), p=self.p)].next()

    @staticmethod
    def _source(source: Any, ioctx: IOContext) -> InputReader:
        if source == "sampler":
            return ioctx.default_sampler_input()
        if not callable(source) and registered_input(source) is None:
            return JsonReader(source, ioctx)
        creator: Any = registered_input(source) or source
        return creator(ioctx)
