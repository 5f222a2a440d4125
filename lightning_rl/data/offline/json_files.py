"""RLlib's JSON files: one batch a line, columns as lists of numbers or packed.

A packed column is base64 of LZ4 of a pickle. Pickles run what they name when they are loaded; here only those load that
name nothing but NumPy's arrays and numbers.
"""

from __future__ import annotations

import base64
import binascii
import glob
import io
import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lightning_rl.data.offline import tables
from lightning_rl.data.offline.shards import ShardError, require
from lightning_rl.data.offline.steps import DataSpec, Steps
from lightning_rl.errors import ConfigError, first_line
from lightning_rl.replay.storage import available_bytes
from lightning_rl.sample_batch import AnyBatch, MultiAgentBatch, SampleBatch, as_plain

__all__ = ["JsonReader", "JsonWriter", "find_files", "parse_batch", "read_json"]

NAMES = {"new_obs": "next_obs", "terminateds": "terminated", "dones": "terminated", "truncateds": "truncated"}
"""RLlib's name of a column → its name here."""
USED = {*tables.NAMES.values(), "eps_id", "agent_index"}
"""The columns that steps are made of."""
THEIRS = {"next_obs": ("new_obs",), "terminated": ("terminateds", "dones"), "truncated": ("truncateds",)}
"""Name of a column here → RLlib's names; before 2.3 it had only `dones`."""
ARRAYS = {
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
    *(("numpy", name) for name in ("ndarray", "dtype")),
    ("_codecs", "encode"),
}
"""(module, name) of what a pickled array may name."""


class JsonWriter:
    """Appends batches of rows to `DIRECTORY/output-NUMBER.json`, which RLlib reads as well.

    Args:
        directory: made if it is not there; existing files are kept, the numbers continue.
        max_file_size: a file that has grown to this many bytes is followed by a new one.
        compress_columns: are packed, all others are lists of numbers; nested columns are always packed, and
            "infos" are left out.

    Raises:
        ConfigError: lz4 is not installed.
    """

    def __init__(
        self,
        directory: str | Path,
        max_file_size: int = 64 * 2**20,
        compress_columns: Sequence[str] = ("obs", "next_obs"),
    ) -> None:
        self._lz4 = require("lz4.frame", "JsonWriter")
        self.directory, self.max_file_size = Path(directory), max_file_size
        self.compress_columns = tuple(compress_columns)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._number = len(list(self.directory.glob("output-*.json")))

    def write(self, batch: AnyBatch) -> None:
        """One line."""
        if isinstance(batch, MultiAgentBatch):
            parts = {policy_id: self._encode_columns(part) for policy_id, part in batch.items()}
            line = {"type": "MultiAgentBatch", "count": batch.count, "policy_batches": parts}
        else:
            line = {"type": "SampleBatch", **self._encode_columns(batch)}
        file = self.directory / self.file_name(self._number)
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
        self._number += file.stat().st_size >= self.max_file_size

    def file_name(self, number: int) -> str:
        """The name of the file with this number; it begins with "output-"."""
        return f"output-{number:05}.json"

    def _encode_columns(self, batch: SampleBatch) -> dict[str, Any]:
        written = batch.without("infos").numpy()  # which hold anything
        encoded = {name: self._encode(name, column) for name, column in written.items()}
        return {theirs: value for name, value in encoded.items() for theirs in THEIRS.get(name, (name,))}

    def _encode(self, name: str, column: Any) -> Any:
        nested = isinstance(column, SampleBatch)
        if not nested and name not in self.compress_columns:
            return column.tolist()
        plain = _arrays(as_plain(column)) if nested else column
        return base64.b64encode(self._lz4.compress(pickle.dumps(plain))).decode("ascii")


class JsonReader:
    """Gives the batches of files again and again: all of one pass in random order, then the next pass.

    Args:
        inputs: directory, file, pattern such as "runs/*.json", or a list of these.
        seed: the seed of the order; readers of several workers get different ones.

    Raises:
        ConfigError: there is no batch in them, or a line is none.
    """

    def __init__(self, inputs: str | Path | Sequence[str | Path], seed: int = 0) -> None:
        self.files = find_files([inputs] if isinstance(inputs, str | Path) else inputs)
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
            return SampleBatch(_columns(lines.readline(), f"{file}, byte {start}")).torch()


def read_json(files: Sequence[Path]) -> tuple[DataSpec, Steps]:
    """The steps in RLlib's files, and spaces that are inferred from them.

    "dones" are terminations, as RLlib reads them; observations are vectors or images, as its preprocessors give them.

    Raises:
        ConfigError: a line is not a batch, or has no observations, actions and rewards.
    """
    batches: dict[str, list[dict[str, Any]]] = {}
    for file in files:
        with file.open("rb") as lines:
            found = [_steps(line, f"{file}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
        if found:
            batches[str(file)] = found
    if not batches:
        raise ConfigError(f"{', '.join(map(str, files))}: no batch; expected a batch a line (JsonWriter)")
    names = sorted(set[str].intersection(*(set(columns) for found in batches.values() for columns in found)))
    return tables.steps_of_arrays(
        {file: [{name: columns[name] for name in names} for columns in found] for file, found in batches.items()}
    )


def _steps(line: bytes, where: str) -> dict[str, np.ndarray]:
    """The columns of a line that steps are made of."""
    columns = {name: column for name, column in _columns(line, where).items() if name in USED}
    for name, column in columns.items():
        if isinstance(column, SampleBatch):
            raise ShardError(f"{where}: {name} has the parts {', '.join(column)}; expected vectors, numbers or images")
    agents = columns.pop("agent_index", None)
    if "eps_id" in columns:  # which agents of one episode share
        ids = columns.pop("eps_id")
        agents = np.zeros_like(ids) if agents is None else agents
        if agents.shape != ids.shape:
            raise ShardError(f"{where}: agent_index has the shape {list(agents.shape)}, and eps_id {list(ids.shape)}")
        columns["episode"] = np.stack([ids.ravel(), agents.ravel()], axis=1)
    if "terminated" in columns:  # `dones` include time limits; every other episode was still running
        columns.setdefault("truncated", np.zeros_like(columns["terminated"]))
    return columns


def find_files(inputs: Sequence[str | Path], suffixes: Sequence[str] = (".json",)) -> list[Path]:
    """The files that these files, patterns, and directories of files with one of the suffixes stand for, in order."""
    found: list[Path] = []
    for entry in inputs:
        path = Path(entry).expanduser()
        if path.is_dir():
            found += sorted(each for each in path.iterdir() if each.suffix in suffixes)
        else:
            found += [path] if path.exists() else sorted(map(Path, glob.glob(str(path))))
    return list(dict.fromkeys(found))  # a file that two entries stand for, once


def _starts(file: Path) -> Iterator[int]:
    start = 0
    with file.open("rb") as lines:
        for line in lines:
            if line.strip():
                yield start
            start += len(line)


def _columns(line: bytes, where: str) -> dict[str, Any]:
    """The columns of a line under their names here; of several policies those of the only one."""
    batch = parse_batch(line, where)
    if isinstance(batch, MultiAgentBatch):
        if len(batch.policy_batches) != 1:
            raise ShardError(f"{where}: this line has the policies {', '.join(batch.policy_batches)}; expected one")
        (batch,) = batch.policy_batches.values()
    return dict(batch.items())


def parse_batch(line: str | bytes | Mapping[str, Any], where: str) -> AnyBatch:
    """The batch in a line: arrays under their names here, without "infos".

    Args:
        line: JSON, or the object in it.
        where: the file and the place in it, for the message.

    Raises:
        ConfigError: it is not a batch.
    """
    try:
        written: dict[str, Any] = dict(line) if isinstance(line, Mapping) else json.loads(line)
        kind = written.pop("type")
        if kind == "MultiAgentBatch":
            parts = {str(name): _batch(columns) for name, columns in written["policy_batches"].items()}
            return MultiAgentBatch(parts, int(written["count"]))
        if kind != "SampleBatch":
            raise KeyError("type")
        return _batch(written)
    except (
        *(KeyError, TypeError, ValueError, AttributeError, RecursionError, RuntimeError, EOFError, MemoryError),
        *(binascii.Error, pickle.UnpicklingError, ImportError, IndexError),
    ) as error:
        raise ShardError(f"{where}: this is not a batch ({type(error).__name__}: {first_line(error)})") from error


def _batch(written: dict[str, Any]) -> SampleBatch:
    named = {NAMES.get(name, name): value for name, value in written.items() if name != "infos"}
    return SampleBatch({name: _column(value) for name, value in named.items()})


def _column(value: Any) -> Any:
    """A packed column, or a list of numbers: floats as float32, whole numbers as int64."""
    if isinstance(value, str):
        unpacker = require("lz4.frame", "a packed column").LZ4FrameDecompressor()
        content = unpacker.decompress(base64.b64decode(value, validate=True), available_bytes() // 2)
        if not unpacker.eof:
            raise ValueError("a packed column is cut off, or larger than the memory")
        return _numbers(_ArraysOnly(io.BytesIO(content)).load())
    array = np.asarray(value)
    return _numbers(array.astype(np.float32) if array.dtype == np.float64 else array)


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _numbers(child) for name, child in value.items()}
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"a column holds {array.dtype}; expected numbers")
    if array.ndim == 0:
        raise TypeError("a column holds one number; expected numbers of each step")
    return array


def _arrays(value: Any) -> Any:
    return {name: _arrays(child) for name, child in value.items()} if isinstance(value, dict) else value.numpy()


class _ArraysOnly(pickle.Unpickler):
    """Loads pickles of arrays and plain containers."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse everything else that a pickle names.

        Raises:
            UnpicklingError: it names something else.
        """
        if (module, name) not in ARRAYS:
            raise pickle.UnpicklingError(f"a packed column names {module}.{name}, which is not loaded")
        return super().find_class(module, name)
