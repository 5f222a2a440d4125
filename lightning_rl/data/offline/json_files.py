"""Sample batches as lines of JSON: one batch a line, which is easy to look at, to append to and to read a part of."""

from __future__ import annotations

import base64
import glob
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lightning_rl.errors import ConfigError
from lightning_rl.sample_batch import SampleBatch

__all__ = ["JsonReader", "JsonWriter"]


class JsonWriter:
    """Appends batches to `DIRECTORY/output-NUMBER.json`.

    Args:
        directory: made if it is not there; existing files are kept, the numbers go on.
        max_file_size: a file that has grown to this many bytes is followed by a new one.
        compress_columns: written as base64 of their bytes, all others as lists of numbers.
    """

    def __init__(
        self,
        directory: str | Path,
        max_file_size: int = 64 * 2**20,
        compress_columns: Sequence[str] = ("obs", "next_obs"),
    ) -> None:
        self.directory, self.max_file_size = Path(directory), max_file_size
        self.compress_columns = tuple(compress_columns)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._number = len(list(self.directory.glob("output-*.json")))

    def write(self, batch: SampleBatch) -> None:
        """One line; nested columns are nested objects."""
        line = {name: self._encode(column, name in self.compress_columns) for name, column in batch.numpy().items()}
        file = self.directory / f"output-{self._number:05}.json"
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps({"type": "SampleBatch", **line}) + "\n")
        self._number += file.stat().st_size >= self.max_file_size

    def _encode(self, column: Any, compress: bool) -> Any:
        if isinstance(column, SampleBatch):
            return {"columns": {name: self._encode(child, compress) for name, child in column.items()}}
        kind = {"dtype": str(column.dtype), "shape": list(column.shape)}
        if compress:
            return {**kind, "base64": base64.b64encode(np.ascontiguousarray(column).tobytes()).decode("ascii")}
        return {**kind, "values": column.tolist()}


class JsonReader:
    """Gives the batches of files again and again: all of one pass in random order, then the next pass.

    Args:
        inputs: directory, file, pattern such as "runs/*.json", or a list of these.
        seed: of the order; readers of several workers get different ones.

    Raises:
        ConfigError: there is no batch in them, or a line is none.
    """

    def __init__(self, inputs: str | Path | Sequence[str | Path], seed: int = 0) -> None:
        self.files = _files([inputs] if isinstance(inputs, str | Path) else inputs)
        # Where each line starts, so that only the needed lines are read.
        self._lines = [(file, start) for file in self.files for start in _starts(file)]
        if not self._lines:
            raise ConfigError(f"{inputs!r} holds no batch; expected .json files with one batch a line (JsonWriter)")
        self._random = np.random.default_rng(seed)
        self._order: list[int] = []

    def __len__(self) -> int:
        """Batches in all files."""
        return len(self._lines)

    def next(self) -> SampleBatch:
        """The next batch, its columns as tensors."""
        if not self._order:
            self._order = self._random.permutation(len(self._lines)).tolist()
        file, start = self._lines[self._order.pop()]
        with file.open("rb") as lines:
            lines.seek(start)
            return _batch(lines.readline(), f"{file}, byte {start}")


def _files(inputs: Sequence[str | Path]) -> list[Path]:
    found: list[Path] = []
    for entry in inputs:
        path = Path(entry)
        found += sorted(path.glob("*.json")) if path.is_dir() else sorted(map(Path, glob.glob(str(entry))))
    return found


def _starts(file: Path) -> Iterator[int]:
    start = 0
    with file.open("rb") as lines:
        for line in lines:
            if line.strip():
                yield start
            start += len(line)


def _batch(line: bytes, where: str) -> SampleBatch:
    try:
        written = json.loads(line)
        if written.pop("type") != "SampleBatch":
            raise KeyError("type")
        return SampleBatch({name: _column(value) for name, value in written.items()}).torch()
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{where}: this line is no batch ({type(error).__name__}: {error})") from error


def _column(value: Any) -> Any:
    """A column as `JsonWriter` wrote it, or a plain list of numbers."""
    if isinstance(value, list):
        array = np.asarray(value)
        return array.astype(np.float32) if array.dtype == np.float64 else array
    if "columns" in value:
        return {name: _column(child) for name, child in value["columns"].items()}
    if "base64" in value:
        flat = np.frombuffer(base64.b64decode(value["base64"]), dtype=value["dtype"])
        return flat.reshape(value["shape"]).copy()
    return np.asarray(value["values"], dtype=value["dtype"]).reshape(value["shape"])
