"""Experience in D4RL's files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lightning_rl.data.offline.tables import read_table
from lightning_rl.rllib.offline.input_reader import InputReader
from lightning_rl.rllib.offline.io_context import IOContext
from lightning_rl.rllib.offline.json_reader import postprocess_actions
from lightning_rl.rllib.sample_batch import SampleBatch
from lightning_rl.sample_batch import transition_rows

__all__ = ["D4RLReader"]


class D4RLReader(InputReader):
    """Gives the transitions of a file in random order, each once in a pass, `train_batch_size` at a time.

    Args:
        inputs: an .hdf5 file of D4RL; its package, which makes environments by their names, is not needed.
        ioctx: has the batch size, and the policy whose space the actions are converted to.

    Raises:
        ConfigError: the file is not there, or damaged.
    """

    def __init__(self, inputs: str | Path, ioctx: IOContext | None = None) -> None:
        self.ioctx = ioctx or IOContext()
        _, steps = read_table([Path(inputs).expanduser()])
        self.dataset = SampleBatch.of(transition_rows(steps.fragment()).numpy())
        self._generator = np.random.default_rng(self.ioctx.config.get("seed") or 0)
        self._order = np.empty(0, np.int64)

    def next(self) -> Any:
        """The next transitions of the pass."""
        rows = self.ioctx.config.get("train_batch_size", 1)
        if len(self._order) < rows:
            self._order = np.append(self._order, self._generator.permutation(self.dataset.count))
        chosen, self._order = self._order[:rows], self._order[rows:]
        return postprocess_actions(self.dataset[chosen], self.ioctx)
