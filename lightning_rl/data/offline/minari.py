"""Reads and writes data sets of Minari without its package, which makes environments that a file names.

HDF5 is one file with a group for each episode; Arrow and Parquet are a table for each, in whose last row only the
observation means something.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space, registry, spaces

from lightning_rl.data.offline.shards import ShardError, check_memory, require
from lightning_rl.data.offline.steps import DataSpec, Steps, in_env_space, join
from lightning_rl.data.offline.tables import hdf5_array, inferred_space
from lightning_rl.errors import ConfigError, first_line, short_repr
from lightning_rl.spaces import space_from_json, space_to_json
from lightning_rl.spaces.structure import leaf_spaces

__all__ = ["FORMATS", "read_minari", "write_minari"]

FORMATS = ("hdf5", "arrow", "parquet")

COLUMNS = (("observations", "obs", "observation_space"), ("actions", "actions", "action_space"))
ENDS = {"rewards": "rewards", "terminations": "terminated", "truncations": "truncated"}
WRITTEN_AS = "0.5.3"
"""The version of Minari whose form is written; 0.5.4 did not change it."""
OF_INFOS = ("action_logp", "action_mask")
OF_OBSERVATIONS = ("obs", *OF_INFOS)
"""Columns with an entry for each observation of an episode, also for the last one."""
DATASET_ID = re.compile(r"([-\w]+/)*[-\w]+-v\d+")


def read_minari(name: str) -> tuple[DataSpec, Steps]:
    """The steps of a data set.

    Args:
        name: directory of the data set; or its id among $MINARI_DATASETS_PATH or ~/.minari/datasets, such as
            "mujoco/hopper/medium-v0".

    Raises:
        ConfigError: it is not there, cannot be read, or holds JPEG images or Text.
    """
    root = _root()
    directory = next((each / "data" for each in (Path(name), root / name) if (each / "data").is_dir()), None)
    if directory is None:
        raise ConfigError(
            f"data.input={short_repr('minari:' + name)}: neither {name} nor {root / name} holds a data set"
        )
    try:
        about = json.loads((directory / "metadata.json").read_text())
        written = {key: about[key] for key in ("observation_space", "action_space") if key in about}
        known = {key: space_from_json(_ours(json.loads(text))) for key, text in written.items()}
        kind = about["data_format"]
        if kind not in FORMATS:
            raise ConfigError(f"{directory} has data_format {kind!r}; expected one of {', '.join(FORMATS)}")
        steps = join(list(_of_hdf5(directory, known) if kind == "hdf5" else _of_tables(directory, known, kind)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ShardError(f"{directory} cannot be read: {type(error).__name__}: {first_line(error)}") from error
    spec = DataSpec(
        known.get("observation_space") or inferred_space(steps.columns[("obs",)], bounded=False),
        known.get("action_space")
        or inferred_space(steps.columns[("actions",)][steps.columns[("valid",)]], bounded=True),
        {"minari": about.get("dataset_id", name), "env": _env_id(about)},
        inferred=len(known) < 2,
    )
    return spec, steps.check(spec, str(directory))


def write_minari(name: str, spec: DataSpec, parts: Iterator[Steps], kind: str = "hdf5") -> Path:
    """Write steps as a data set of Minari, which `minari.load_dataset` reads; returns its directory.

    Actions are written in the environment's space, and images without JPEG. Log-probabilities and masks of actions
    become infos, as if the environment had given them: masks at each observation, log-probabilities after each action.

    Args:
        name: id of the data set below $MINARI_DATASETS_PATH or ~/.minari/datasets, such as "cartpole/expert-v0"; or an
            absolute path that ends with such an id.
        spec: its spaces, and the environment that the data are from.
        parts: whole episodes.
        kind: one of `FORMATS`.

    Raises:
        ConfigError: the name is not an id of a data set, or there is one already.
    """
    path, root = Path(name), _root()
    dataset_id = path.name if path.is_absolute() else name
    if DATASET_ID.fullmatch(dataset_id) is None:
        raise ConfigError(f"{name!r} is not an id of Minari; expected a name with a version, such as my_data-v0")
    directory = (path if path.is_absolute() else root / name) / "data"
    if directory.exists():
        raise ConfigError(f"{directory} exists already: give another name or version")
    episodes = (
        steps[start:stop]
        for steps in (in_env_space(spec.action_space, part) for part in parts)
        for start, stop in pairwise([0, *(steps.closing_rows + 1)])
    )
    directory.mkdir(parents=True)
    if kind == "hdf5":
        lengths = _write_hdf5(directory, spec, episodes)
    else:
        lengths = _write_tables(directory, spec, episodes, kind)
    written = [file for file in directory.rglob("*") if file.is_file()]
    about = {
        "dataset_id": dataset_id,
        "minari_version": WRITTEN_AS,
        "data_format": kind,
        "jpeg_encoding": False,
        "total_episodes": len(lengths),
        "total_steps": sum(lengths),
        "dataset_size": round(sum(file.stat().st_size for file in written) / 2**20, 1),
        **{key: json.dumps(_theirs(getattr(spec, key))) for key in ("observation_space", "action_space")},
    }
    env = registry.get(str((spec.about or {}).get("env")))
    if env is not None:
        about["env_spec"] = env.to_json()
    (directory / "metadata.json").write_text(json.dumps(about))
    return directory.parent


def _root() -> Path:
    return Path(os.environ.get("MINARI_DATASETS_PATH", Path.home() / ".minari" / "datasets"))


def _write_hdf5(directory: Path, spec: DataSpec, episodes: Iterable[Steps]) -> list[int]:
    """Write the file of HDF5; returns the number of steps of each episode."""
    h5py, lengths = require("h5py", "writing minari:…"), []
    with h5py.File(directory / "main_data.hdf5", "w", track_order=True) as content:
        for number, episode in enumerate(episodes):
            lengths.append(len(episode) - 1)
            group = content.create_group(f"episode_{number}")
            for (name, *path), array in _arrays_of(spec, episode).items():
                space = {theirs: getattr(spec, space) for theirs, _, space in COLUMNS}.get(name)
                key = "/".join((name, *(path if space is None else _hdf5_names(space, path))))
                own = array if name in ("observations", "infos") else array[:-1]
                group.create_dataset(key, data=own, chunks=True, maxshape=(None, *array.shape[1:]))
            group.attrs.update({"id": number, "total_steps": lengths[-1]})
    return lengths


def _write_tables(directory: Path, spec: DataSpec, episodes: Iterable[Steps], kind: str) -> list[int]:
    """Write a directory with a table for each episode; returns the number of steps of each."""
    pa, dataset, lengths = require("pyarrow", "writing minari:…"), require("pyarrow.dataset", "writing minari:…"), []
    for number, episode in enumerate(episodes):
        lengths.append(len(episode) - 1)
        own = directory / str(number)
        table = pa.Table.from_struct_array(_to_arrow(pa, _arrays_of(spec, episode)))
        dataset.write_dataset(table, own, format=kind, basename_template=f"part-{{i}}.{kind}")
        (own / "metadata.json").write_text(json.dumps({"id": number, "total_steps": lengths[-1]}))
    return lengths


def _arrays_of(spec: DataSpec, episode: Steps) -> dict[tuple[str, ...], np.ndarray]:
    """Paths of Minari's names → the arrays of an episode; in the last row, only observations and infos are not 0."""
    found = {
        (theirs, *path): episode.columns[(ours, *path)]
        for theirs, ours, space in COLUMNS
        for path in _paths(getattr(spec, space))
    }
    found |= {(theirs,): episode.columns[(ours,)] for theirs, ours in ENDS.items()}
    found = {path: array if path[0] == "observations" else _with_row(array[:-1]) for path, array in found.items()}
    if (logp := episode.columns.get(("action_logp",))) is not None:
        found[("infos", "action_logp")] = np.roll(logp, 1)  # 0 at the reset
    if (mask := episode.columns.get(("action_mask",))) is not None:
        found[("infos", "action_mask")] = mask
    return found


def _theirs(space: Space[Any]) -> dict[str, Any]:
    """A space in Minari's JSON."""
    kind = {"type": type(space).__name__}
    if isinstance(space, spaces.Dict):
        return {**kind, "subspaces": {name: _theirs(child) for name, child in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {**kind, "subspaces": [_theirs(child) for child in space.spaces]}
    written = space_to_json(space)
    arrays = {name: getattr(space, name).tolist() for name in ("low", "high", "nvec", "start") if name in written}
    return {**written, **arrays}


def _ours(written: Mapping[str, Any]) -> dict[str, Any]:
    """A space in Minari's JSON as `space_to_json` would write it."""
    parts = written.get("subspaces")
    if isinstance(parts, Mapping):
        return {"type": "Dict", "spaces": [[name, _ours(child)] for name, child in parts.items()]}
    if parts is not None:
        return {"type": "Tuple", "spaces": [_ours(child) for child in parts]}
    return {"shape": list(np.shape(written.get("nvec", ()))), **written}  # Minari writes the shapes of Boxes only


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
            ends = {ours: hdf5_array(group, theirs, file) for theirs, ours in ENDS.items()}
            infos = {name: hdf5_array(group, f"infos/{name}", file) for name in OF_INFOS if f"infos/{name}" in group}
            yield _episode(arrays, ends, infos)


def _of_tables(directory: Path, known: Mapping[str, Space[Any]], kind: str) -> Iterator[Steps]:
    dataset = require("pyarrow.dataset", "data.input=minari:…")
    numbered = sorted((each for each in directory.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
    for episode in numbered:
        for file in sorted(episode.glob(f"*.{kind}")):
            content = dataset.dataset(file, format=kind)
            check_memory(file, content.count_rows() * sum(_row_bytes(each.type) for each in content.schema))
            table = content.to_table(use_threads=False)
            arrays = {
                (ours, *path): _arrow_array(table.column(theirs).combine_chunks(), path, leaf, file)
                for theirs, ours, space in COLUMNS
                for path, leaf in _leaves(known.get(space))
            }
            # The last row has the observation after the last step.
            arrays = {path: array[:-1] if path[0] == "actions" else array for path, array in arrays.items()}
            ends = {ours: table.column(theirs).to_numpy()[:-1] for theirs, ours in ENDS.items()}
            given = table.column("infos").combine_chunks() if "infos" in table.column_names else None
            names = [] if given is None else [name for name in OF_INFOS if given.type.get_field_index(name) >= 0]
            yield _episode(arrays, ends, {name: _arrow_array(given, (name,), None, file) for name in names})


def _row_bytes(kind: Any) -> int:
    """Bytes of a row of numbers, lists of numbers or structs of them, in memory."""
    if hasattr(kind, "list_size"):
        return kind.list_size * _row_bytes(kind.value_type)
    return sum(_row_bytes(kind.field(index).type) for index in range(kind.num_fields)) or 8


def _episode(arrays: dict[Any, np.ndarray], ends: Mapping[str, np.ndarray], infos: Mapping[str, np.ndarray]) -> Steps:
    """An episode's steps and closing row, of observations and infos `[T+1, *]` and all else `[T, *]`."""
    count = len(ends["rewards"])
    arrays |= {(name,): np.roll(info, -1, 0) if name == "action_logp" else info for name, info in infos.items()}
    columns = {path: array if path[0] in OF_OBSERVATIONS else _with_row(array) for path, array in arrays.items()}
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


def _hdf5_names(space: Any, path: Sequence[str]) -> Iterator[str]:
    """The names of groups that lead to a leaf: parts of a Tuple are "_index_0", …."""
    for name in path:
        yield f"_index_{name}" if isinstance(space, spaces.Tuple) else name
        space = space.spaces[int(name)] if isinstance(space, spaces.Tuple) else space[name]


def _to_arrow(pa: Any, arrays: Mapping[tuple[str, ...], np.ndarray]) -> Any:
    """Arrays by path as one Arrow array: of numbers, of lists of them, or of structs."""
    if (array := arrays.get(())) is None:
        names = [*dict.fromkeys(path[0] for path in arrays)]
        parts = [{path[1:]: each for path, each in arrays.items() if path[0] == name} for name in names]
        return pa.StructArray.from_arrays([_to_arrow(pa, part) for part in parts], names=names)
    if array.ndim == 1:
        return pa.array(array)
    flat = np.ascontiguousarray(array).reshape(len(array), -1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1])


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
