"""Opens recorded experience, whatever its format: its spaces at once, its steps part by part; and converts it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning_rl.data.offline.json_files import find_files, read_json
from lightning_rl.data.offline.minari import read_minari, write_minari
from lightning_rl.data.offline.shards import (
    ShardError,
    find_shards,
    is_shard,
    named_as_shard,
    read_shape,
    read_shard,
    write_shard,
)
from lightning_rl.data.offline.steps import DataSpec, Steps, episodes_for
from lightning_rl.data.offline.tables import TABLES, read_table, write_hdf5
from lightning_rl.errors import ConfigError, short_repr
from lightning_rl.sample_batch import SampleBatch

__all__ = ["DataSet", "convert", "open_data", "read_episodes"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DataSet:
    """Recorded experience that is read part by part.

    Args:
        name: the name of the file or directory, for messages.
        spec: spaces, and where the data are from.
        rows: the rows of all parts, closing rows included.
        read: gives the parts.
        damaged: files that were left out so far, with the reason.
    """

    name: str
    spec: DataSpec
    rows: int
    read: Callable[[], Iterator[Steps]]
    damaged: dict[str, str] = field(default_factory=dict)

    def log_damaged(self) -> None:
        """Warn of the files that were left out so far, if there are any."""
        if self.damaged:
            log.warning("%s: left out %s damaged shards: %s", self.name, len(self.damaged), ", ".join(self.damaged))


def open_data(
    source: str | Path | Sequence[str], columns: Mapping[str, Any] | None = None, *, skip_damaged: bool = False
) -> DataSet:
    """Open recorded experience.

    Args:
        source: a directory of shards, as `data.output` and `lightning-rl record` write, or one of them; a file, .csv,
            .parquet, .npz, .hdf5 or .h5 (`tables.read_table`), or RLlib's .json, a directory of such files, a pattern,
            or a list of these; or "minari:NAME_OR_DIRECTORY".
        columns: the columns of the files; name of `tables.NAMES` → column, or list of columns.
        skip_damaged: whether damaged shards are left out, and counted, instead of refused.

    Raises:
        ConfigError: nothing is there, or nothing that can be read.
    """
    several = not isinstance(source, str | Path)
    name, path = ", ".join(map(str, source)) if several else str(source), Path() if several else Path(source)
    kind, _, place = name.partition(":")
    if kind == "minari" and place:
        spec, steps = read_minari(place)
    else:
        files = find_files(source if several else [source], (".json", *TABLES))
        named = not path.is_file() and any(map(named_as_shard, files))  # of a lone file, its content counts
        if named or any(map(is_shard, files)):
            return open_shards(name, [file for file in files if file.suffix == ".parquet"], skip_damaged)
        if not files and path.is_dir() and not several:
            return open_shards(name, find_shards(path), skip_damaged)  # says what it lacks
        if not files:
            raise ConfigError(f"data.input={short_repr(name)} does not exist; expected a directory or a file with data")
        if len(kinds := {file.suffix for file in files}) > 1:
            raise ConfigError(f"data.input={short_repr(name)} has files of {', '.join(sorted(kinds))}: give one kind")
        spec, steps = read_json(files) if kinds == {".json"} else read_table(files, columns)
    return DataSet(name, spec, len(steps), lambda: iter([steps]))


def read_episodes(
    policy: Any,
    source: str | Sequence[str],
    columns: Mapping[str, Any] | None = None,
    *,
    actions_normalized: bool = False,
    skip_damaged: bool = False,
) -> SampleBatch:
    """All episodes of recorded experience as a fragment `[R, 1, …]` for a policy; logs which shards were left out.

    Args:
        policy, actions_normalized: see `episodes_for`.
        source, columns, skip_damaged: see `open_data`.

    Raises:
        ConfigError: see both.
    """
    data = open_data(source, columns, skip_damaged=skip_damaged)
    episodes = episodes_for(policy, data.read(), data.name, actions_normalized=actions_normalized)
    data.log_damaged()
    return episodes


def convert(data: DataSet, target: str, minari_format: str | None = None) -> Path:
    """Write a data set in another format, part by part; returns where it is.

    Args:
        data: what `open_data` returns.
        target: "minari:NAME" (`minari.write_minari`), a file with the suffix .hdf5 or .h5 for D4RL's format
            (`tables.write_hdf5`), or a directory for shards.
        minari_format: one of `minari.FORMATS`, for "minari:NAME"; `None`: HDF5.

    Raises:
        ConfigError: there is one already, its name is unsuitable, or the format lacks what the data need.
    """
    kind, colon, name = target.partition(":")
    if kind == "minari" and colon:
        return write_minari(name, data.spec, data.read(), minari_format or "hdf5")
    if minari_format is not None:
        raise ConfigError(f"--format {minari_format} with --to {short_repr(target)}: it is for --to minari:NAME")
    path = Path(target)
    if path.suffix in (".hdf5", ".h5"):
        return write_hdf5(path, data.spec, data.read())
    if path.suffix or any(path.glob("*")):
        raise ConfigError(
            f"--to {short_repr(target)}: expected minari:NAME, a file.hdf5, or a new directory for shards"
        )
    for number, steps in enumerate(data.read()):
        write_shard(path, f"part-{number:05}", steps, data.spec)
    return path


def open_shards(name: str, files: Sequence[Path], skip_damaged: bool) -> DataSet:
    """Open shards.

    Raises:
        ConfigError: one is damaged, or with `skip_damaged` all are.
    """
    damaged: dict[str, str] = {}
    shapes: dict[Path, tuple[DataSpec, int]] = {}
    for file in files:
        try:
            shapes[file] = read_shape(file)
        except ShardError as error:
            if not skip_damaged:
                raise
            damaged[str(file)] = str(error)
    if not shapes:
        raise ConfigError(f"all {len(damaged)} shards in {name} are damaged, such as: {next(iter(damaged.values()))}")
    spec = next(iter(shapes.values()))[0]

    def read() -> Iterator[Steps]:
        for file in shapes:
            try:
                yield read_shard(file, spec)
            except ShardError as error:
                if not skip_damaged:
                    raise
                damaged[str(file)] = str(error)

    return DataSet(name, spec, sum(rows for _, rows in shapes.values()), read, damaged)
