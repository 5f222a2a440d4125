"""Experience in a dataset of Ray Data, whose rows are batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from lightning_rl.data.offline.json_files import parse_batch
from lightning_rl.data.offline.shards import require
from lightning_rl.errors import ConfigError
from lightning_rl.rllib.offline.input_reader import InputReader
from lightning_rl.rllib.offline.io_context import IOContext
from lightning_rl.rllib.offline.json_reader import JsonReader, at_least
from lightning_rl.rllib.sample_batch import SampleBatch

__all__ = ["DatasetReader", "reader_of_dataset"]


class DatasetReader(InputReader):
    """Reads the rows of a dataset in random order, without end.

    Args:
        ds: has `random_shuffle(seed=)` and `iter_rows()`, as `ray.data.Dataset`; a row is what a line of RLlib's JSON
            is: column → list of numbers, or packed.
        ioctx: see `JsonReader`.

    Raises:
        ConfigError: a row is not a batch, or there are none.
    """

    def __init__(self, ds: Any, ioctx: IOContext | None = None) -> None:
        self.ds, self.ioctx = ds, ioctx or IOContext()
        self._rows = self._endless()

    def next(self) -> Any:
        """Rows of the dataset until there are enough, joined."""
        return at_least(self._rows, self.ioctx)

    def _endless(self) -> Iterator[Any]:
        seed = self.ioctx.config.get("seed")
        while True:
            count = 0
            for count, row in enumerate(self.ds.random_shuffle(seed=seed).iter_rows(), start=1):
                batch: Any = parse_batch({**row, "type": "SampleBatch"}, f"row {count} of the dataset")
                yield SampleBatch.of(batch)
            if not count:
                raise ConfigError("the dataset of input_config has no rows; expected a batch in each")


def reader_of_dataset(ioctx: IOContext) -> InputReader:
    """The reader of `input="dataset"`.

    Args:
        ioctx: its `input_config` has "loader_fn", a function that returns the dataset; or "format" ("json" or
            "parquet") and "paths", a path or a list of them.

    Raises:
        ConfigError: `input_config` has something else.
    """
    options = ioctx.input_config
    paths = options.get("paths")
    if "loader_fn" in options:
        return DatasetReader(options["loader_fn"](), ioctx)
    if options.get("format") not in ("json", "parquet") or not paths:
        raise ConfigError(
            f"input_config={dict(options)!r}; expected loader_fn, or paths and a format, which is json or parquet"
        )
    files = [paths] if isinstance(paths, str) else list(paths)
    return JsonReader(files, ioctx) if options["format"] == "json" else DatasetReader(ParquetBatches(files), ioctx)


class ParquetBatches:
    """The rows of Parquet files that RLlib's DatasetWriter wrote, as of a dataset.

    Args:
        paths: files, or directories of them.
    """

    def __init__(self, paths: list[str]) -> None:
        parquet = require("pyarrow.parquet", 'input="dataset"')
        self.rows = [row for path in paths for row in parquet.read_table(path).to_pylist()]

    def random_shuffle(self, *, seed: int | None = None) -> ParquetBatches:
        """The rows in another order."""
        np.random.default_rng(seed).shuffle(self.rows)
        return self

    def iter_rows(self) -> Iterator[Mapping[str, Any]]:
        """Each row."""
        return iter(self.rows)
