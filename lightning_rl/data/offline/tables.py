"""Data sets that are arrays with a row per step: reads CSV, Parquet, .npz and D4RL's HDF5, which it also writes."""

from __future__ import annotations

import logging
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from lightning_rl.data.offline.shards import ShardError, check_memory, require
from lightning_rl.data.offline.steps import DataSpec, Steps, close_episodes, in_env_space, steps_since
from lightning_rl.errors import ConfigError, did_you_mean, first_line, short_repr

__all__ = ["NAMES", "TABLES", "hdf5_array", "inferred_space", "read_table", "steps_of_arrays", "write_hdf5"]

log = logging.getLogger(__name__)

NAMES = {
    **{"obs": "obs", "observations": "obs", "next_obs": "next_obs", "next_observations": "next_obs"},
    **{"action": "actions", "actions": "actions", "reward": "rewards", "rewards": "rewards"},
    **{"terminated": "terminated", "terminals": "terminated", "terminations": "terminated"},
    **{"truncated": "truncated", "timeouts": "truncated", "truncations": "truncated", "done": "done", "dones": "done"},
    **{"episode": "episode", "t": "t", "action_logp": "action_logp", "action_prob": "action_prob"},
    **{"infos/action_log_probs": "action_logp"},
}
"""What a column of `data.columns`, of an .npz or of D4RL's HDF5 may be called, and the name that it has here.

`done` is a step that ended its episode, and terminated it unless `truncated` says otherwise.
"""
NEEDED = ("obs", "actions", "rewards")
ENDS = {"terminated", "truncated", "done"}
WITH_SHAPE = ("obs", "actions", "next_obs", "episode")  # of each step; it has one number of everything else
D4RL = {
    **{"observations": "obs", "actions": "actions", "rewards": "rewards", "terminals": "terminated"},
    **{"timeouts": "truncated", "infos/action_log_probs": "action_logp"},
}
"""D4RL's names of arrays → ours."""


def read_table(files: Sequence[Path], columns: Mapping[str, Any] | None = None) -> tuple[DataSpec, Steps]:
    """The steps in a file, or in several with the same columns, and spaces that are inferred from them.

    Observations and actions of one column are numbers, of several columns or of a Parquet column of lists vectors; a
    list of lists is an array of more dimensions. No episode is longer than its file. Actions are Discrete if they are
    whole numbers, else a Box, between the smallest and the largest. Episodes end where the column of `episode` changes,
    or at a step that is `terminated`, `truncated` or `done`; if there is none of these, each episode's last step
    terminates. Without `truncated`, the other episodes that `episode` or `t` tell apart are truncated by a time limit.
    Without `next_obs`, the last step of an episode that did not terminate only closes it, and the step before is
    truncated; with it, an episode is cut after a row whose `next_obs` is not the `obs` of the next one, as transitions
    in random order are. With
    `episode` and `t`, rows are sorted; else an episode that is not in order is not whole, and without `episode` none.

    Args:
        files: .csv, .parquet, .npz, .hdf5 or .h5.
        columns: name of `NAMES` → column of the files, or a list of columns; `None`: the files have those names.

    Raises:
        ConfigError: a file cannot be read, or has no such columns, or others than the first; values are missing, or no
            finite numbers, or no probabilities; an episode has two rows with one `t`; or no step has a next
            observation.
    """
    names = {name: name for name in NAMES} if columns is None else _checked(columns)
    arrays: dict[str, list[dict[str, np.ndarray]]] = {}
    for file in files:
        if file.suffix not in TABLES:
            expected = f"expected a directory of shards, or {', '.join(TABLES)}"
            raise ConfigError(f"data.input={short_repr(str(file))}: {expected}")
        found = TABLES[file.suffix](file, names, columns is None)
        arrays[str(file)] = [{NAMES[name]: array for name, array in found.items()}]
    return steps_of_arrays(arrays)


def _checked(columns: Mapping[str, Any]) -> dict[str, str | list[str]]:
    for name in columns:
        if name not in NAMES:
            raise ConfigError(f"data.columns.{name} is unknown.{did_you_mean(name, NAMES)} Known: {', '.join(NAMES)}")
    checked: dict[str, str | list[str]] = {}
    for name, given in columns.items():
        if given is None:
            continue
        keys = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
        if not keys or not all(isinstance(key, str | int) for key in keys):  # a header may be 0, 1, 2
            raise ConfigError(f"data.columns.{name}={given!r}; expected the name of a column, or a list of names")
        checked[name] = str(given) if keys[0] is given else list(map(str, keys))
    return checked


def steps_of_arrays(files: Mapping[str, Sequence[Mapping[str, np.ndarray]]]) -> tuple[DataSpec, Steps]:
    """Spaces and steps of arrays `[N, *]` under the values of `NAMES`; no episode is longer than its file.

    Args:
        files: name of the file → its arrays, as they are or in several batches.

    Raises:
        ConfigError: an array is missing, has another length, another form than in the first batch, or values other than
            numbers; or an episode has two rows with one `t`.
    """
    parts = [
        (file if len(batches) == 1 else f"{file}, batch {number}", batch)
        for file, batches in files.items()
        for number, batch in enumerate(batches, 1)
    ]
    checked = {place: _checked_arrays(arrays, place) for place, arrays in parts}
    forms = {place: _form(arrays) for place, arrays in checked.items()}
    first, form = next(iter(forms.items()))
    for place, own in forms.items():
        for name in sorted(own.keys() | form.keys()):
            here, there = own.get(name, "missing"), form.get(name, "missing")
            if here != there:
                raise ConfigError(
                    f"{place}: rows of {name} are {here}, and those of {first} {there}: give data of one form"
                )
    names = list(files)
    place = names[0] if len(names) == 1 else f"{names[0]} to {Path(names[-1]).name}"
    arrays = checked[first]
    if len(checked) > 1:  # a single file is not copied
        arrays = {name: np.concatenate([part[name] for part in checked.values()]) for name in form}
    return _steps(arrays, place, [sum(len(batch["rewards"]) for batch in batches) for batches in files.values()])


def _form(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Of each array, the form of its rows in words."""
    shapes = {name: list(array.shape[1:]) for name, array in arrays.items()}
    return {name: f"of shape {shape}" if shape else "numbers" for name, shape in shapes.items()}


def _checked_arrays(arrays: Mapping[str, np.ndarray], place: str) -> dict[str, np.ndarray]:
    """The arrays `[N, *]`, where a step has one of its kind `[N]`."""
    if missing := [name for name in NEEDED if name not in arrays]:
        raise ConfigError(
            f"{place} has no {', '.join(missing)}: name its columns with data.columns={{obs: [x, y], …}}, or with "
            '--columns \'{"obs": ["x", "y"], …}\' of a verb'
        )
    checked, count = dict(arrays), len(arrays["rewards"])
    for name, array in arrays.items():
        if len(array) != count:
            raise ConfigError(f"{place}: {name} has {len(array)} rows, and rewards {count}")
        if name != "episode" and array.dtype.kind not in "biuf":
            raise ConfigError(f"{place}: {name} holds {array.dtype}; expected numbers")
        if name not in WITH_SHAPE:
            if array.size != count:
                raise ConfigError(f"{place}: {name} has rows of shape {list(array.shape[1:])}; expected one number")
            checked[name] = array.reshape(count)
        if array.dtype.kind == "f":
            finite = np.isfinite(array).all(tuple(range(1, array.ndim)))
            _refuse(place, name, checked[name], ~finite, "finite numbers: drop those episodes")
    if "action_prob" in checked and "action_logp" not in checked:
        expected = "the probability of the action that was taken, above 0"
        _refuse(place, "action_prob", checked["action_prob"], checked["action_prob"] <= 0, expected)
    for name, most in (("action_prob", 1.001), ("action_logp", 0.001)):
        if name in checked and (checked[name] > most).any() and _actions(checked["actions"]).dtype == np.int64:
            expected = "probabilities up to 1 (action_prob), or their logarithms up to 0 (action_logp)"
            _refuse(place, name, checked[name], checked[name] > most, expected)
    return checked


def _refuse(place: str, name: str, array: np.ndarray, wrong: Any, expected: str) -> None:
    """Raise an error that names the first wrong row, if there is one."""
    if wrong.any():
        row = int(wrong.argmax())
        raise ConfigError(
            f"{place}: {name} has {array[row]} in row {row}, and such values in {int(wrong.sum())} rows; expected "
            f"{expected}"
        )


def _steps(arrays: dict[str, np.ndarray], place: str, lengths: Sequence[int]) -> tuple[DataSpec, Steps]:
    """Spaces and steps of the checked arrays of files of these lengths, one after the other."""
    count, file = sum(lengths), np.repeat(np.arange(len(lengths)), lengths)
    if "episode" in arrays and (arrays["episode"].ndim == 2 or len(lengths) > 1):  # several columns tell them apart
        told_by = [file, *arrays["episode"].reshape(count, -1).T]
        numbers = [np.unique(column, return_inverse=True)[1].reshape(-1) for column in told_by]
        arrays["episode"] = np.unique(np.stack(numbers, 1), axis=0, return_inverse=True)[1].reshape(-1)
    order = _order(arrays, count, place)
    arrays = {name: array if order is None else array[order] for name, array in arrays.items()}
    last, terminated, truncated = _ends(arrays, count, np.cumsum(lengths))
    obs, following = _floats(arrays["obs"]), _floats(arrays["next_obs"]) if "next_obs" in arrays else None
    begins, broken = np.flatnonzero(np.roll(last, 1)), np.zeros(count, bool)
    if following is not None:
        if following.shape != obs.shape:
            raise ConfigError(
                f"{place}: rows of next_obs have shape {list(following.shape[1:])}, and those of obs "
                f"{list(obs.shape[1:])}: give both the same columns"
            )
        continues = np.isclose(following[:-1], obs[1:], 1e-5, 1e-6)  # except for a rounding of the file
        broken[:-1] = ~continues.all(tuple(range(1, obs.ndim)))
    disordered = _disordered(arrays, broken, last)
    if not ENDS & set(arrays):
        terminated &= ~disordered  # the last row may be any
    last |= broken
    final = None if following is None else {("obs",): following[last]}
    columns: dict[Any, np.ndarray] = {
        ("obs",): obs,
        ("actions",): _actions(arrays["actions"]),
        ("rewards",): arrays["rewards"].astype(np.float32),
        ("terminated",): terminated,
        ("truncated",): truncated & ~terminated,
        ("t",): steps_since(begins, count) + disordered,  # where such an episode begins is unknown
    }
    if "action_logp" in arrays:
        columns[("action_logp",)] = arrays["action_logp"].astype(np.float32)
    elif "action_prob" in arrays:
        columns[("action_logp",)] = np.log(arrays["action_prob"]).astype(np.float32)
    spec = DataSpec(
        inferred_space(obs, bounded=False),
        inferred_space(columns[("actions",)], bounded=True),
        {"file": place},
        inferred=True,
    )
    steps = close_episodes(columns, np.flatnonzero(last), final)
    if count and not steps.columns[("valid",)].any():
        raise ConfigError(
            f"{place}: no step of {count} has a next observation: none terminated, and no episode has two steps; "
            "name the columns next_obs or terminated, or check those of episode and t"
        )
    return spec, steps.check(spec, place)


def _disordered(arrays: Mapping[str, np.ndarray], broken: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Which rows are of an episode in an unknown order, bool `[N]`; without `episode`, any row may be of any.

    Args:
        arrays: columns `[N, *]`; `episode` and `t` together tell the order.
        broken, last: bool `[N]`, whether the next row does not continue a row; whether it is the last of an episode.
    """
    if {"episode", "t"} <= set(arrays):
        return np.zeros(len(broken), bool)
    if "episode" not in arrays:
        return np.full(len(broken), (broken & ~last).any())
    continued = np.append(arrays["episode"][1:] == arrays["episode"][:-1], False)
    episode = np.cumsum(~continued) - ~continued
    return np.bincount(episode, broken & continued)[episode] > 0


def write_hdf5(file: Path, spec: DataSpec, parts: Iterator[Steps]) -> Path:
    """Write steps as D4RL's HDF5, with actions in the environment's space; returns the file.

    Beside D4RL's arrays, "next_observations" holds the observation after every step, and "episode" the number of its
    episode, because recording may have cut one without a terminal or timeout.

    Raises:
        ConfigError: observations or actions are nested, or there is a file already.
    """
    if isinstance(spec.observation_space, spaces.Dict | spaces.Tuple) or isinstance(
        spec.action_space, spaces.Dict | spaces.Tuple
    ):
        raise ConfigError(f"{file}: D4RL's format has no nested observations or actions: write minari:NAME")
    if file.exists():
        raise ConfigError(f"{file} exists already: give another name")
    h5py, episodes = require("h5py", "writing .hdf5"), 0
    file.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(file, "w") as content:
        for part in parts:
            columns = in_env_space(spec.action_space, part).columns
            rows = np.flatnonzero(columns[("valid",)])
            arrays = {theirs: columns[(ours,)][rows] for theirs, ours in D4RL.items() if (ours,) in columns}
            arrays["next_observations"] = columns[("obs",)][rows + 1]
            arrays["episode"] = np.searchsorted(part.closing_rows, rows) + episodes
            episodes += len(part.closing_rows)
            for name, array in arrays.items():
                if name not in content:
                    content.create_dataset(name, data=array, chunks=True, maxshape=(None, *array.shape[1:]))
                else:
                    stored = content[name]
                    stored.resize(len(stored) + len(array), axis=0)
                    stored[-len(array) :] = array
    return file


def _order(arrays: Mapping[str, np.ndarray], count: int, place: str) -> np.ndarray | None:
    """Rows in order of the episodes' first rows, and by time within each; `None`: as they are."""
    if "episode" not in arrays:
        return None
    _, first, number = np.unique(arrays["episode"], return_index=True, return_inverse=True)
    episode = first[number.reshape(count)]
    if "t" not in arrays:
        return np.argsort(episode, kind="stable")
    time = arrays["t"]
    order = np.lexsort((time, episode))
    twice = (np.diff(episode[order]) == 0) & (np.diff(time[order]) == 0)
    if twice.any():
        row = order[1:][twice].min()
        raise ConfigError(
            f"{place}: row {row} is the second of episode {arrays['episode'][row]} with t={time[row]}: drop it if it "
            "is there twice; else name all columns that tell episodes apart: data.columns={episode: [session, number]}"
        )
    return order


def _ends(
    arrays: Mapping[str, np.ndarray], count: int, ends_of_files: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which rows are the last of an episode, terminate it, and truncate it, bool `[N]` each."""
    last = np.zeros(count, bool)
    if "episode" in arrays:
        last[:-1] = arrays["episode"][1:] != arrays["episode"][:-1]
    elif "t" in arrays:
        last[:-1] = np.diff(arrays["t"]) <= 0
    last[ends_of_files[ends_of_files > 0] - 1] = True
    terminated, truncated, done = (
        arrays.get(name, np.zeros(count)) != 0 for name in ("terminated", "truncated", "done")
    )
    if not ENDS & set(arrays):
        terminated = last.copy()
    elif "terminated" in arrays:
        truncated |= done & ~terminated
    else:
        terminated = done & ~truncated
    last |= terminated | truncated
    if {"episode", "t"} & set(arrays) and "truncated" not in arrays:
        truncated |= last & ~terminated  # a time limit, which the table has no column for
    return last, terminated, truncated


def _floats(column: np.ndarray) -> np.ndarray:
    """Numbers as float32, a single column of them as a vector of one; images stay bytes."""
    rows = column.reshape(-1, 1) if column.ndim == 1 else column
    return rows if rows.dtype == np.uint8 else rows.astype(np.float32)


def _actions(column: np.ndarray) -> np.ndarray:
    """A single column of whole numbers as int64 `[N]`, others as float32 `[N, K]`."""
    rows = column.reshape(len(column), math.prod(column.shape[1:]))
    with np.errstate(invalid="ignore"):
        whole = rows.astype(np.int64)
    return whole[:, 0] if rows.shape[1] == 1 and (whole == rows).all() else rows.astype(np.float32)


def inferred_space(column: np.ndarray, bounded: bool) -> Space[Any]:
    """A Discrete of the whole numbers from the smallest to the largest, or a Box; `bounded`: by the range that occurs.

    Only actions that were recorded can be learned from data, so that a count from 1 is one.
    """
    if column.dtype == np.int64:
        low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
        return spaces.Discrete(high - low + 1, start=low)
    if column.dtype == np.uint8:
        return spaces.Box(0, 255, column.shape[1:], np.uint8)
    if not bounded or not np.isfinite(column).all():
        return spaces.Box(-np.inf, np.inf, column.shape[1:])
    return spaces.Box(column.min(0), column.max(0))


def _read_arrow(file: Path, names: Mapping[str, Any], optional: bool) -> dict[str, np.ndarray]:
    """The columns of a CSV or Parquet table."""
    pa = require("pyarrow", "data.input")
    try:
        if file.suffix == ".parquet":
            parquet = require("pyarrow.parquet", "data.input")
            metadata = parquet.read_metadata(file)
            check_memory(file, metadata.num_rows * metadata.num_columns * 8)
            table = parquet.read_table(file, page_checksum_verification=True)
        else:
            table = require("pyarrow.csv", "data.input").read_csv(file)
        present = table.column_names
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        hint = ": save it as UTF-8" if isinstance(error, UnicodeDecodeError) else ""
        raise ShardError(f"{file} cannot be read: {first_line(error)}{hint}") from error
    return _take(names, optional, present, lambda name: _column(table, file, name), file)


def _column(table: Any, file: Path, name: str) -> np.ndarray:
    """One column `[N]`, or `[N, *]` of lists."""
    pc, types = require("pyarrow.compute", "data.input"), require("pyarrow.types", "data.input")
    column, shape = table.column(name).combine_chunks(), [len(table)]
    while True:
        if column.null_count:
            row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False))) // max(math.prod(shape[1:]), 1)
            raise ConfigError(f"{file}: column {name!r} is empty in {column.null_count} rows, such as row {row}")
        if not (
            types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type)
        ):
            if types.is_decimal(column.type):
                column = column.cast("float64")
            elif types.is_time(column.type):
                column = column.cast(f"int{column.type.bit_width}")
            array = column.to_numpy(zero_copy_only=False).reshape(shape)
            return array.astype(np.int64) if array.dtype.kind in "mM" else array
        lengths = np.unique(pc.list_value_length(column))
        if len(lengths) > 1:
            raise ConfigError(
                f"{file}: column {name!r} has lists of {lengths[0]} to {lengths[-1]}; expected one length"
            )
        column, shape = pc.list_flatten(column), [*shape, *lengths.tolist()]


def _side_by_side(arrays: Mapping[str, np.ndarray], file: Path) -> np.ndarray:
    """Columns `[N]` as `[N, K]`."""
    for name, array in arrays.items():
        if array.ndim > 1 or len(array) != len(next(iter(arrays.values()))):
            raise ConfigError(
                f"{file}: {name!r} has the shape {list(array.shape)}; columns of a list are one number each"
            )
    return np.stack(list(arrays.values()), axis=1)


def _read_npz(file: Path, names: Mapping[str, Any], optional: bool) -> dict[str, np.ndarray]:
    """The arrays of an .npz file."""
    try:
        with zipfile.ZipFile(file) as archive:
            check_memory(file, sum(each.file_size for each in archive.infolist()))
        with np.load(file, allow_pickle=False) as arrays:
            return _take(names, optional, arrays.files, lambda name: arrays[name], file)
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ShardError(f"{file} cannot be read: {first_line(error)}") from error


def _read_hdf5(file: Path, names: Mapping[str, Any], optional: bool) -> dict[str, np.ndarray]:
    """The arrays of an HDF5 file, as D4RL's; links to other places and other files are not followed."""
    h5py = require("h5py", "data.input")
    try:
        with h5py.File(file, "r") as content:
            return _take(names, optional, _datasets(h5py, content), lambda name: hdf5_array(content, name, file), file)
    except (OSError, RuntimeError, KeyError) as error:
        raise ShardError(f"{file} cannot be read: {first_line(error)}") from error


def _datasets(h5py: Any, group: Any, prefix: str = "") -> list[str]:
    found: list[str] = []
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        child = group[name]
        found += _datasets(h5py, child, f"{prefix}{name}/") if isinstance(child, h5py.Group) else [f"{prefix}{name}"]
    return found


def hdf5_array(group: Any, name: str, file: Path) -> np.ndarray:
    """An array that is stored in the file itself.

    Raises:
        ConfigError: its content is in another file, or does not fit into the memory.
    """
    dataset = group[name]
    if dataset.external or dataset.is_virtual:
        raise ConfigError(f"{file}: {name!r} is stored in another file; expected a file that holds its data itself")
    if dataset.dtype.kind not in "biuf":
        raise ConfigError(f"{file}: {name!r} holds {dataset.dtype}; expected numbers")
    check_memory(file, math.prod(dataset.shape) * dataset.dtype.itemsize)
    return np.asarray(dataset[()])


def _take(
    names: Mapping[str, Any], optional: bool, present: Sequence[str], read: Callable[[str], np.ndarray], file: Path
) -> dict[str, np.ndarray]:
    """The named columns or arrays; several for one name side by side."""
    if optional:
        names = {name: key for name, key in names.items() if key in present}
        unread = [key for key in present if key not in names and not key.startswith(("infos/", "metadata/"))]
        if unread:
            log.warning("%s: %s are not read; known names: %s", file, short_repr(unread), ", ".join(NAMES))
    found: dict[str, np.ndarray] = {}
    for name, given in names.items():
        keys = [given] if isinstance(given, str) else given
        arrays: dict[str, np.ndarray] = {}
        for key in keys:
            if present.count(key) != 1:
                raise ConfigError(
                    f"{file} has {'two columns' if key in present else 'no column'} {key!r}."
                    f"{did_you_mean(key, present)} It has {', '.join(present)}"
                )
            arrays[key] = array = read(key)
            if len(array) == 0:
                raise ConfigError(f"{file} has no rows")
            if NAMES[name] != "episode" and array.dtype.kind not in "biuf":
                raise ConfigError(
                    f"{file}: {key!r} holds {array.dtype}, such as {array.flat[0]!r}; expected numbers: give each "
                    "choice a number from 0 on"
                )
        found[name] = arrays[given] if isinstance(given, str) else _side_by_side(arrays, file)
    return found


TABLES = {".csv": _read_arrow, ".parquet": _read_arrow, ".npz": _read_npz, ".hdf5": _read_hdf5, ".h5": _read_hdf5}
"""Suffix of a file → its reader."""
