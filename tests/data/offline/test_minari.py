"""Data sets in Minari's three formats, as its version 0.5.4 writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
from gymnasium import spaces
from pyarrow import dataset

from lightning_rl.data.offline import shards
from lightning_rl.data.offline.data_set import open_data
from lightning_rl.data.offline.steps import Steps
from lightning_rl.errors import ConfigError

BOX = {"type": "Box", "dtype": "float32", "shape": [2], "low": [-1.0, -1.0], "high": [1.0, 1.0]}
OBS = {"type": "Dict", "subspaces": {"goal": {"type": "Tuple", "subspaces": [BOX]}, "x": BOX}}
ABOUT = {"dataset_id": "toy/move-v0", "env_spec": json.dumps({"id": "Stranger-v0", "entry_point": "stranger:Evil"})}
ACTIONS = {"type": "Discrete", "dtype": "int64", "n": 3, "start": 0}
SPACES = {"observation_space": json.dumps(OBS), "action_space": json.dumps(ACTIONS)}


def episodes() -> list[dict[str, Any]]:
    """Episodes of 12 and 1 steps, the second of which terminates; numbered so that "10" is not before "2"."""
    rng = np.random.default_rng(0)
    return [
        {
            "observations": {
                "goal": (rng.uniform(-1, 1, (steps + 1, 2)).astype(np.float32),),
                "x": np.zeros((steps + 1, 2)),
            },
            "actions": rng.integers(0, 3, steps),
            "rewards": np.arange(steps, dtype=float),
            "terminations": np.arange(steps) == (steps - 1 if steps == 1 else -1),
            "truncations": np.arange(steps) == (steps - 1 if steps > 1 else -1),
        }
        for steps in (12, 1)
    ]


def write_hdf5(directory: Path) -> None:
    with h5py.File(directory / "main_data.hdf5", "w") as file:
        for number, episode in zip((2, 10), episodes(), strict=True):
            group = file.create_group(f"episode_{number}")
            group["observations/goal/_index_0"] = episode["observations"]["goal"][0]
            group["observations/x"] = episode["observations"]["x"].astype(np.float32)
            for name in ("actions", "rewards", "terminations", "truncations"):
                group[name] = episode[name]


def lists(array: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(array.astype(np.float32).ravel(), 2)


def write_tables(directory: Path, kind: str) -> None:
    for number, episode in zip((2, 10), episodes(), strict=True):
        goal = pa.StructArray.from_arrays([lists(episode["observations"]["goal"][0])], names=["0"])
        obs = pa.StructArray.from_arrays([goal, lists(episode["observations"]["x"])], names=["goal", "x"])
        rest = {name: np.pad(episode[name], (0, 1)) for name in ("actions", "rewards", "terminations", "truncations")}
        steps = np.full(len(obs), number, np.int32)
        batch = pa.RecordBatch.from_pydict({"episode_id": steps, "observations": obs, **rest})
        options: Any = {"partitioning": ["episode_id"], "existing_data_behavior": "overwrite_or_ignore"}
        dataset.write_dataset(batch, directory, format=kind, **options)


def written(root: Path, kind: str, **about: Any) -> Path:
    directory = root / "toy" / "move-v0" / "data"
    directory.mkdir(parents=True)
    (directory / "metadata.json").write_text(json.dumps({**ABOUT, "data_format": kind, **about}))
    write_hdf5(directory) if kind == "hdf5" else write_tables(directory, kind)
    return directory


def read(name: Any) -> Steps:
    (steps,) = open_data(f"minari:{name}").read()
    return steps


@pytest.mark.parametrize("kind", ["hdf5", "arrow", "parquet"])
def test_all_formats_are_read_by_name_and_by_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    directory = written(tmp_path, kind, **SPACES)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    steps = read("toy/move-v0")
    valid = steps.columns[("valid",)]
    assert steps.closing_rows.tolist() == [12, 14]
    first, second = episodes()
    goals = np.concatenate((first["observations"]["goal"][0], second["observations"]["goal"][0]))
    assert np.array_equal(steps.columns[("obs", "goal", "0")], goals)
    assert steps.columns[("actions",)][valid].tolist() == [*first["actions"], *second["actions"]]
    assert steps.columns[("rewards",)][valid].tolist() == [*range(12), 0]
    assert np.flatnonzero(steps.columns[("terminated",)]).tolist() == [13]
    assert np.flatnonzero(steps.columns[("truncated",)]).tolist() == [11]
    spec = open_data(f"minari:{directory.parent}").spec
    box = spaces.Box(-1, 1, (2,))
    assert spec.observation_space == spaces.Dict({"goal": spaces.Tuple((box,)), "x": box})
    assert spec.action_space == spaces.Discrete(3)
    assert spec.about == {"minari": "toy/move-v0", "env": "Stranger-v0"}


def test_links_and_damaged_files_are_refused(tmp_path: Path) -> None:
    directory = written(tmp_path, "hdf5", **SPACES)
    file = directory / "main_data.hdf5"
    with h5py.File(file, "a") as content:
        content["episode_11"] = h5py.ExternalLink("other.hdf5", "episode_2")
    with pytest.raises(ConfigError, match="'episode_11' is a link"):
        read(directory.parent)
    file.write_bytes(file.read_bytes()[:3000])
    with pytest.raises(ConfigError, match=str(directory)):
        read(directory.parent)
    with pytest.raises(ConfigError, match="holds a data set"):
        read(tmp_path / "nothing")
    (directory / "metadata.json").write_text(json.dumps({**ABOUT, "data_format": "lance"}))
    with pytest.raises(ConfigError, match="'lance'"):
        read(directory.parent)


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_a_table_that_is_cut_or_larger_than_the_memory_is_refused(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """13 rows of 2 + 2 floats, an action, a reward and two ends, of at most 8 bytes each, need at most 832 bytes."""
    directory = written(tmp_path, kind, **SPACES)
    (file,) = (directory / "2").iterdir()
    with monkeypatch.context() as less:
        less.setattr(shards, "ENOUGH", 0)
        less.setattr(shards, "available_bytes", lambda: 800)
        with pytest.raises(ConfigError, match=f"{file} holds 0.00 GiB"):
            read(directory.parent)
        less.setattr(shards, "available_bytes", lambda: 1000)
        read(directory.parent)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ConfigError, match=str(directory)):
        read(directory.parent)


def test_spaces_whose_shape_minari_does_not_write_are_read(tmp_path: Path) -> None:
    actions = {"type": "MultiDiscrete", "dtype": "int64", "nvec": [[3, 2]], "start": [[0, 1]]}
    directory = written(tmp_path, "hdf5", **{**SPACES, "action_space": json.dumps(actions)})
    with h5py.File(directory / "main_data.hdf5", "a") as content:
        for episode in content.values():
            first = episode["actions"][()]
            del episode["actions"]
            episode["actions"] = np.stack((first, np.ones_like(first)), 1)[:, None]
    spec = open_data(f"minari:{directory.parent}").spec
    assert spec.action_space == spaces.MultiDiscrete(np.array([[3, 2]]), start=np.array([[0, 1]]))


def test_without_spaces_in_the_metadata_they_are_inferred_and_no_environment_is_made(tmp_path: Path) -> None:
    """`env_spec` names code of a stranger, which Minari would import."""
    directory = written(tmp_path, "hdf5", action_space=SPACES["action_space"])
    with h5py.File(directory / "main_data.hdf5", "a") as content:
        for episode in content.values():
            flat = episode["observations/x"][()]
            del episode["observations"]
            episode["observations"] = flat
    spec = open_data(f"minari:{directory.parent}").spec
    assert spec.inferred and spec.observation_space.shape == (2,) and spec.action_space == spaces.Discrete(3)
