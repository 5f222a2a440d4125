"""What readers and writers of experience learn about the place where they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from lightning_rl.errors import ConfigError
from lightning_rl.rllib.offline.input_reader import InputReader
from lightning_rl.rllib.sample_batch import SampleBatch
from lightning_rl.rllib.trajectories import trajectories
from lightning_rl.sample_batch import concat_samples

__all__ = ["IOContext", "PlayedRows"]

ALONE = {"train_batch_size": 1, "actions_in_input_normalized": True}
"""The config without a trainer: a line at a time, with the actions as they are."""


class IOContext:
    """The argument of functions that make an `InputReader` or an `OutputWriter`.

    Args:
        log_dir: directory of the run; `None`: the current one.
        config: RLlib's keys.
        worker_index: number of the worker; 0 in the process that learns.
        worker: has `get_policy()`, and `sample()` if it has environments.
    """

    def __init__(
        self,
        log_dir: str | None = None,
        config: Mapping[str, Any] | None = None,
        worker_index: int = 0,
        worker: Any = None,
    ) -> None:
        self.log_dir = str(Path.cwd()) if log_dir is None else log_dir
        self.config = ALONE if config is None else config
        self.worker_index, self.worker = worker_index, worker

    @property
    def input_config(self) -> Mapping[str, Any]:
        """The key `input_config`."""
        return self.config.get("input_config") or {}

    @property
    def output_config(self) -> Mapping[str, Any]:
        """The key `output_config`."""
        return self.config.get("output_config") or {}

    def default_sampler_input(self) -> InputReader:
        """Reads what the workers sample in their environments.

        Raises:
            ConfigError: there is no worker.
        """
        if self.worker is None:
            raise ConfigError("this IOContext has no worker to sample: it is made by a Trainer whose input needs one")
        return SamplerInput(self.worker)


class PlayedRows(SampleBatch):
    """Rows that a worker has played, whose callbacks have seen them."""

    __slots__ = ()


class SamplerInput(InputReader):
    """The experience of workers as rows.

    Args:
        worker: has `sample()`.
    """

    def __init__(self, worker: Any) -> None:
        self.worker = worker

    def next(self) -> SampleBatch:
        """The rows of one fragment."""
        fragment = self.worker.sample().map(torch.as_tensor)
        return PlayedRows.of(concat_samples(trajectories(fragment)))
