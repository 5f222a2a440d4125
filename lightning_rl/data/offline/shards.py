"""Parquet shards: the format in which runs record experience.

A shard is a Parquet file with a row per step and a closing row per episode (`steps.py`), in columns named by their
paths, so that pandas, polars or DuckDB read it as a table. Its schema metadata hold spaces, shapes and what the data
are from. The file's name ends with a digest of its content, so that a single changed bit is found, and the file comes
into being by a rename, so that a killed process leaves complete shards only.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from lightning_rl.data.offline.steps import DataSpec, Steps
from lightning_rl.errors import ConfigError, UnsupportedSpaceError, first_line
from lightning_rl.replay.storage import available_bytes
from lightning_rl.run_directory.atomic import write_atomically
from lightning_rl.spaces import space_from_json, space_to_json

__all__ = [
    "ShardError",
    "check_memory",
    "find_shards",
    "is_shard",
    "named_as_shard",
    "read_shape",
    "read_shard",
    "require",
    "write_shard",
]

FORMAT = 1
KEY = b"lightning_rl"
ENOUGH = 2**28  # bytes; less is never refused, because free memory may be low for a moment
NAME = re.compile(r".*-([0-9a-f]{16})\.parquet")


class ShardError(ConfigError):
    """A shard that is damaged, or was written by something else."""


def require(package: str, purpose: str) -> Any:
    """Import a package of the extra "offline".

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise ConfigError(f'{purpose} needs the package {error.name}: pip install -e ".[offline]"') from error


def write_shard(directory: Path, stem: str, steps: Steps, spec: DataSpec) -> Path:
    """Write steps to `DIRECTORY/STEM-DIGEST.parquet`, compressed by Zstandard; returns that path.

    Raises:
        OSError: nothing can be written there.
    """
    pa, parquet = require("pyarrow", "data.output"), require("pyarrow.parquet", "data.output")
    layout = [[list(path), list(column.shape[1:]), str(column.dtype)] for path, column in steps.columns.items()]
    described = {
        "format": FORMAT,
        "columns": layout,
        "observation_space": space_to_json(spec.observation_space),
        "action_space": space_to_json(spec.action_space),
        "acted_with": steps.acted_with,
        "about": spec.about,
    }
    table = pa.table({".".join(path): _to_arrow(pa, column) for path, column in steps.columns.items()})
    content = io.BytesIO()
    parquet.write_table(
        table.replace_schema_metadata({KEY: json.dumps(described)}), content, compression="zstd", use_dictionary=False
    )
    file = directory / f"{stem}-{_digest(content.getbuffer())}.parquet"
    write_atomically(file, content.getvalue(), durable=False)
    return file


def is_shard(file: Path) -> bool:
    """Whether a file is one that `write_shard` wrote, under any name, and not another table."""
    if file.suffix != ".parquet":
        return False
    pa, parquet = require("pyarrow", "data.input"), require("pyarrow.parquet", "data.input")
    try:
        return KEY in (parquet.read_metadata(file).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def named_as_shard(file: Path) -> bool:
    """Whether a file has the name that `write_shard` gives, whatever it holds."""
    return NAME.fullmatch(file.name) is not None


def find_shards(directory: Path) -> list[Path]:
    """The shards in a directory, in the order of their names; a shard itself is the only one.

    Raises:
        ConfigError: there are none.
    """
    found = [directory] if directory.is_file() else sorted(directory.glob("*.parquet"))
    if not found:
        of_policies = ", ".join(sorted({str(file.parent) for file in directory.glob("*/*.parquet")}))
        raise ConfigError(
            f"{directory} holds no shard; "
            + (
                f"those of several policies are in {of_policies}: give one of these, or their environment with env="
                if of_policies
                else "expected *.parquet as data.output or `lightning-rl record` writes, files such as .csv, or "
                f"Minari's as minari:{directory}"
            )
        )
    return found


def read_shape(file: Path) -> tuple[DataSpec, int]:
    """Spaces of a shard, and the number of its rows, from its metadata alone: its digest is not checked.

    Raises:
        ShardError: the file cannot be read, or is not a shard.
    """
    try:
        spec, _, _, rows = _described(file, file)
    except ShardError:
        if named_as_shard(file):
            _check_digest(file, file.read_bytes())  # a clearer reason
        raise
    return spec, rows


def read_shard(file: Path, like: DataSpec | None = None) -> Steps:
    """The steps in a shard.

    Args:
        file: the file of `write_shard`.
        like: spaces that it has to have; `None`: any.

    Raises:
        ShardError: the file was changed, truncated or renamed, is not a shard, or has other spaces.
        ConfigError: its numbers are not finite or do not fit its spaces, or it does not fit into the memory.
    """
    content = file.read_bytes()
    _check_digest(file, content)
    spec, layout, acted_with, rows = _described(file, io.BytesIO(content))
    if like is not None and (like.observation_space, like.action_space) != (spec.observation_space, spec.action_space):
        raise ShardError(
            f"{file} has observations {spec.observation_space} and actions {spec.action_space}; the shards before it "
            f"have {like.observation_space} and {like.action_space}: keep the data of one environment in a directory"
        )
    check_memory(file, rows * sum(math.prod(shape) * dtype.itemsize for _, shape, dtype in layout))
    try:
        table = require("pyarrow.parquet", "data.input").read_table(io.BytesIO(content), use_threads=False)
        columns = {path: _from_arrow(table.column(".".join(path)), shape, dtype) for path, shape, dtype in layout}
    except (KeyError, ValueError, TypeError, OSError) as error:  # pyarrow's errors derive from these
        raise ShardError(f"{file} cannot be read: {first_line(error)}") from error
    return Steps(columns, acted_with).check(spec, str(file))


def check_memory(file: Path, needed: int) -> None:
    """Refuse a file that does not fit into the memory, before it is unpacked.

    Args:
        file: the file that the message names.
        needed: bytes of its content.

    Raises:
        ConfigError: names the bytes that it needs and those that are free.
    """
    if needed > ENOUGH and needed > (free := available_bytes()):
        raise ConfigError(
            f"{file} holds {needed / 2**30:.2f} GiB, and {free / 2**30:.2f} GiB of memory are free: give smaller files"
        )


def _check_digest(file: Path, content: bytes) -> None:
    """Refuse a shard whose content does not have the digest in its name."""
    named = NAME.fullmatch(file.name)
    if named is None or _digest(content) != named[1]:
        raise ShardError(
            f"{file} is damaged, or was renamed: its content does not have the digest that ends the name of a shard. "
            "Copy it again, or set data.skip_damaged=true to continue without it"
        )


def _described(file: Path, source: Any) -> tuple[DataSpec, list[tuple[Any, tuple[int, ...], Any]], Any, int]:
    """What the metadata of a shard say: spaces, (path, shape, dtype) of columns, `acted_with`, the number of rows."""
    parquet = require("pyarrow.parquet", "data.input")
    try:
        metadata = parquet.read_metadata(source)
        written = json.loads((metadata.metadata or {})[KEY])
        if written["format"] != FORMAT:
            raise ShardError(f"{file} has format {written['format']}; this version reads format {FORMAT}")
        layout = [_layout(path, shape, dtype) for path, shape, dtype in written["columns"]]
        spec = DataSpec(
            space_from_json(written["observation_space"]),
            space_from_json(written["action_space"]),
            written["about"],
        )
    except (KeyError, ValueError, TypeError, AttributeError, OSError, UnsupportedSpaceError) as error:
        if isinstance(error, ShardError):
            raise
        raise ShardError(
            f"{file} is not a shard ({type(error).__name__}: {first_line(error)}); a table of another origin is given "
            f"as one file: data.input={file}, with its columns in data.columns"
        ) from error
    return spec, layout, written["acted_with"], metadata.num_rows


def _layout(path: Sequence[str], shape: Sequence[int], dtype: str) -> tuple[Any, tuple[int, ...], np.dtype[Any]]:
    kind = np.dtype(dtype)
    if kind.kind not in "biuf":
        raise ValueError(f"column {path} has dtype {dtype}")
    return tuple(map(str, path)), tuple(map(int, shape)), kind


def _digest(content: Any) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _to_arrow(pa: Any, column: np.ndarray) -> Any:
    """Numbers, lists of numbers, or the bytes of images, which Parquet reads ten times faster than lists of them."""
    if column.ndim == 1:
        return pa.array(column)
    flat = np.ascontiguousarray(column).reshape(len(column), -1)
    if flat.dtype.itemsize == 1:
        return pa.FixedSizeBinaryArray.from_buffers(pa.binary(flat.shape[1]), len(flat), [None, pa.py_buffer(flat)])
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1])


def _from_arrow(chunked: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    column = chunked.combine_chunks()
    if column.null_count:
        raise ValueError(f"{column.null_count} rows are empty")
    if shape and dtype.itemsize == 1:
        start, count = column.offset * column.type.byte_width, len(column) * column.type.byte_width
        flat = np.frombuffer(column.buffers()[1], np.uint8, count, start).view(dtype)
    else:
        flat = (column.flatten() if shape else column).to_numpy(zero_copy_only=False)
    if flat.dtype != dtype:
        raise ValueError(f"a column has dtype {flat.dtype}; its description says {dtype}")
    return flat.reshape(len(column), *shape)
