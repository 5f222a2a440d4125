"""Reads data sets of Minari, in HDF5 or in Arrow, without its package: that makes environments that a file names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from lightning_rl.data.offline.shards import ShardError, require
from lightning_rl.data.offline.steps import DataSpec, Steps, join
from lightning_rl.data.offline.tables import hdf5_array, inferred_space
from lightning_rl.errors import ConfigError, first_line, short_repr
from lightning_rl.spaces import space_from_json
from lightning_rl.spaces.structure import leaf_spaces

__all__ = ["read_minari"]

COLUMNS = (("observations", "obs", "observation_space"), ("actions", "actions", "action_space"))
ENDS = {"rewards": "rewards", "terminations": "terminated", "truncations": "truncated"}


def read_minari(name: str) -> tuple[DataSpec, Steps]:
    """The steps of a data set.

    Args:
        name: directory of the data set; or its id among $MINARI_DATASETS_PATH or ~/.minari/datasets, such as
            "mujoco/hopper/medium-v0".

    Raises:
        ConfigError: it is not there, cannot be read, or holds JPEG images or Text.
    """
    root = Path(os.environ.get("MINARI_DATASETS_PATH", Path.home() / ".minari" / "datasets"))
    directory = next((each / "data" for each in (Path(name), root / name) if (each / "data").is_dir()), None)
    if directory is None:
        raise ConfigError(
            f"data.input={short_repr('minari:' + name)}: neither {name} nor {root / name} holds a data set"
        )
    try:
        about = json.loads((directory / "metadata.json").read_text())
        written = {key: about[key] for key in ("observation_space", "action_space") if key in about}
        known = {key: space_from_json(_ours(json.loads(text))) for key, text in written.items()}
        episodes = list((_of_arrow if about["data_format"] == "arrow" else _of_hdf5)(directory, known))
        steps = join(episodes)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ShardError(f"{directory} cannot be read: {type(error).__name__}: {first_line(error)}") from error
    spec = DataSpec(
        known.get("observation_space") or inferred_space(steps.columns[("obs",)], bounded=False),
        known.get("action_space") or inferred_space(steps.columns[("actions",)], bounded=True),
        {"minari": about.get("dataset_id", name), "env": _env_id(about)},
        inferred=len(known) < 2,
    )
    return spec, steps.check(spec, str(directory))


def _ours(written: Mapping[str, Any]) -> dict[str, Any]:
    """A space in Minari's JSON as `space_to_json` would write it."""
    parts = written.get("subspaces")
    if isinstance(parts, Mapping):
        return {"type": "Dict", "spaces": [[name, _ours(child)] for name, child in parts.items()]}
    return {"shape": [], **written} if parts is None else {"type": "Tuple", "spaces": [_ours(child) for child in parts]}


def _env_id(about: Mapping[str, Any]) -> str | None:
    return json.loads(about["env_spec"]).get("id") if isinstance(about.get("env_spec"), str) else None


def _of_hdf5(directory: Path, known: Mapping[str, Space[Any]]) -> Iterator[Steps]:
    h5py, file = require("h5py", "data.input=minari:…"), directory / "main_data.hdf5"
    with h5py.File(file, "r") as content:
        names = sorted((name for name in content if name.startswith("episode_")), key=lambda name: int(name[8:]))
        for name in names:
            if not isinstance(content.get(name, getlink=True), h5py.HardLink):
                raise ConfigError(f"{file}: {name!r} is a link; expected episodes that are stored in the file itself")
            group = content[name]
            arrays = {
                (ours, *path): hdf5_array(group, "/".join((theirs, *_hdf5_names(known.get(space), path))), file)
                for theirs, ours, space in COLUMNS
                for path in _paths(known.get(space))
            }
            yield _episode(arrays, {ours: hdf5_array(group, theirs, file) for theirs, ours in ENDS.items()})


def _of_arrow(directory: Path, known: Mapping[str, Space[Any]]) -> Iterator[Steps]:
    pa = require("pyarrow", "data.input=minari:…")
    numbered = sorted((each for each in directory.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
    for episode in numbered:
        for file in sorted(episode.glob("*.arrow")):
            with pa.OSFile(str(file)) as opened, pa.ipc.open_file(opened) as content:
                table = content.read_all()
            count = len(table) - 1  # the last row has the observation after the last step
            arrays = {
                (ours, *path): _arrow_array(table.column(theirs).combine_chunks(), path, leaf, file)
                for theirs, ours, space in COLUMNS
                for path, leaf in _leaves(known.get(space))
            }
            arrays = {path: array[:count] if path[0] == "actions" else array for path, array in arrays.items()}
            yield _episode(arrays, {ours: table.column(theirs).to_numpy()[:count] for theirs, ours in ENDS.items()})


def _episode(arrays: dict[Any, np.ndarray], ends: Mapping[str, np.ndarray]) -> Steps:
    """An episode's steps and closing row, of observations `[T+1, *]` and all else `[T, *]`."""
    count = len(ends["rewards"])
    columns = {path: array if path[0] == "obs" else _with_row(array) for path, array in arrays.items()}
    columns |= {
        (name,): _with_row(array.reshape(count).astype(bool)) for name, array in ends.items() if name != "rewards"
    }
    columns[("rewards",)] = _with_row(ends["rewards"].reshape(count).astype(np.float32))
    columns[("truncated",)] &= ~columns[("terminated",)]
    columns[("valid",)] = np.arange(count + 1) < count
    lengths = {len(column) for column in columns.values()}
    if lengths != {count + 1}:
        raise ConfigError(f"an episode of {count} steps has columns of {sorted(lengths)} rows")
    return Steps(columns)


def _with_row(array: np.ndarray) -> np.ndarray:
    return np.concatenate((array, np.zeros_like(array[:1])))


def _leaves(space: Space[Any] | None) -> Iterator[tuple[tuple[str, ...], Space[Any] | None]]:
    """Paths and spaces of the leaves; of a space that is not known, the one that it is."""
    for path, leaf in [("", None)] if space is None else leaf_spaces(space):
        yield tuple(path.split(".")) if path else (), leaf


def _paths(space: Space[Any] | None) -> Iterator[tuple[str, ...]]:
    return (path for path, _ in _leaves(space))


def _hdf5_names(space: Any, path: tuple[str, ...]) -> Iterator[str]:
    """The names of groups that lead to a leaf: parts of a Tuple are "_index_0", …."""
    for name in path:
        yield f"_index_{name}" if isinstance(space, spaces.Tuple) else name
        space = space.spaces[int(name)] if isinstance(space, spaces.Tuple) else space[name]


def _arrow_array(column: Any, path: tuple[str, ...], leaf: Space[Any] | None, file: Path) -> np.ndarray:
    for name in path:
        column = column.field(name)
    if column.type.num_fields:  # a list of numbers for each row
        flat = column.flatten().to_numpy(zero_copy_only=False)
        return flat.reshape(len(column), *(leaf.shape or () if leaf is not None else (-1,)))
    array = column.to_numpy(zero_copy_only=False)
    if array.dtype.kind not in "biuf":
        raise ConfigError(
            f"{file}: {'.'.join(path) or 'a column'} holds {column.type}; expected numbers, no JPEG or text"
        )
    return array
