"""RLlib's files of experience, read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lightning_rl.data.offline.json_files import find_files, parse_batch
from lightning_rl.errors import ConfigError
from lightning_rl.rllib.offline.input_reader import InputReader
from lightning_rl.rllib.offline.io_context import IOContext
from lightning_rl.rllib.sample_batch import SampleBatch
from lightning_rl.sample_batch import MultiAgentBatch, concat_samples, map_leaves, to_nested_batch

__all__ = ["JsonReader", "at_least", "postprocess_actions"]


class JsonReader(InputReader):
    """Reads files in random order, without end, and the lines of each in theirs.

    The first file is that of the worker's index, then each pass gives every file once. A packed column is a pickle; one
    that names anything but NumPy's arrays is refused. So is a line that is not a batch.

    Args:
        inputs: a file, a directory, a pattern such as "/tmp/demo/*.json", or a list of these.
        ioctx: its config's `train_batch_size`, divided by `num_workers`, is the least number of rows of a batch;
            without a context, a batch is a line.

    Raises:
        ConfigError: there are no files.
    """

    def __init__(self, inputs: str | Path | Sequence[str | Path], ioctx: IOContext | None = None) -> None:
        self.ioctx = ioctx or IOContext()
        self.files = find_files([inputs] if isinstance(inputs, str | Path) else inputs)
        if not self.files:
            raise ConfigError(
                f"input={inputs!r} matches no file; expected RLlib's .json files, as `output` writes them"
            )
        self._lines = self._endless()

    def next(self) -> Any:
        """Lines until there are enough rows, joined: a `SampleBatch`, or a `MultiAgentBatch`."""
        return at_least(self._lines, self.ioctx)

    def read_all_files(self) -> Iterator[Any]:
        """The batch of every line of all files, once."""
        for file in self.files:
            yield from self._lines_of(file)

    def _endless(self) -> Iterator[Any]:
        config, index = self.ioctx.config, self.ioctx.worker_index
        generator = np.random.default_rng([config.get("seed") or 0, index])
        order, first = generator.permutation(len(self.files)).tolist(), index % len(self.files)
        order.remove(first)
        order = [first, *order]
        while True:
            for number in order:
                yield from self._lines_of(self.files[number])
            order = generator.permutation(len(self.files)).tolist()

    def _lines_of(self, file: Path) -> Iterator[Any]:
        empty = True
        with file.open("rb") as lines:
            for number, line in enumerate(lines):
                if line.strip():
                    empty = False
                    batch = parse_batch(line, f"{file}, line {number + 1}")
                    yield batch if isinstance(batch, MultiAgentBatch) else SampleBatch.of(batch)
        if empty:
            raise ConfigError(f"{file} holds no batch; expected one on each line, as `output` writes them")


def at_least(batches: Iterator[Any], ioctx: IOContext) -> Any:
    """Batches joined until they have a worker's share of `train_batch_size` rows, with the policy's actions."""
    wanted = math.ceil(ioctx.config.get("train_batch_size", 1) / max(1, ioctx.config.get("num_workers") or 0))
    held: list[Any] = []
    while sum(batch.count for batch in held) < wanted:
        held.append(postprocess_actions(next(batches), ioctx))
    joined = concat_samples(held)
    return joined if isinstance(joined, MultiAgentBatch) else SampleBatch.of(joined)


def postprocess_actions(batch: Any, ioctx: IOContext) -> Any:
    """The rows with actions in the space of the worker's policy, unless `actions_in_input_normalized` says they are."""
    if ioctx.config.get("actions_in_input_normalized") or ioctx.worker is None:
        return batch
    if isinstance(batch, MultiAgentBatch):
        return MultiAgentBatch(
            {name: _normalized(part, ioctx.worker.get_policy(name)) for name, part in batch.items()}, batch.count
        )
    return _normalized(batch, ioctx.worker.get_policy())


def _normalized(rows: Any, policy: Any) -> Any:
    converted = rows.copy()
    actions = policy.action_transform.from_env(rows["actions"])
    converted["actions"] = to_nested_batch(map_leaves(lambda leaf: leaf.numpy(), actions))
    return converted
