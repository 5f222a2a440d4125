"""Writing data sets in other formats: what is read again equals what was written, bit by bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from lightning_rl.cli import main
from lightning_rl.data.offline.data_set import convert, open_data
from lightning_rl.data.offline.minari import FORMATS
from lightning_rl.data.offline.shards import write_shard
from lightning_rl.data.offline.steps import DataSpec, Steps, close_episodes, in_env_space, join
from lightning_rl.errors import ConfigError
from tests.data.offline.recorded import NESTED, nested_steps, record
from tests.envs.classic_control import PENDULUM


def assert_same_steps(found: Steps, expected: Steps) -> None:
    """Every column is equal bit by bit where it means something: closing rows hold only observations and masks."""
    assert set(expected.columns) - {("t",)} <= set(found.columns)
    valid = expected.columns[("valid",)]
    for path, column in expected.columns.items():
        if path != ("t",):
            rows = slice(None) if path[0] in ("obs", "valid", "action_mask") else valid
            assert found.columns[path][rows].dtype == column.dtype
            assert found.columns[path][rows].tobytes() == column[rows].tobytes(), path


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", ["toy/nested-v0", "ABSOLUTE"])
def test_minari_holds_nested_spaces_in_the_actions_of_the_environment(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    name = str(tmp_path / "toy-v1") if name == "ABSOLUTE" else name
    for number, seed in enumerate((0, 1)):
        write_shard(tmp_path / "shards", f"part-{number}", nested_steps(seed=seed), NESTED)
    written = convert(open_data(tmp_path / "shards"), f"minari:{name}", kind)
    about = json.loads((written / "data" / "metadata.json").read_text())
    assert (about["total_episodes"], about["total_steps"], about["dataset_id"][:3]) == (6, 16, "toy")
    data = open_data(f"minari:{name}")
    assert data.spec.observation_space == NESTED.observation_space and data.spec.action_space == NESTED.action_space
    expected = in_env_space(NESTED.action_space, join([nested_steps(seed=seed) for seed in (0, 1)]))
    assert_same_steps(next(data.read()), expected)


MINARI = "minari:{}/pendulum-v0"


@pytest.mark.parametrize(
    "target", [MINARI, f"{MINARI} --format=arrow", f"{MINARI} --format=parquet", "{}/pendulum.hdf5", "{}/shards"]
)
def test_recorded_episodes_survive_every_format(target: str, tmp_path: Path) -> None:
    """With log-probabilities, and an episode that recording cut, which neither terminated nor was truncated."""
    record(tmp_path / "recorded", PENDULUM, samples=4)
    target, *options = target.format(tmp_path).split()
    assert main(["data", str(tmp_path / "recorded"), "--to", target, *options]) == 0
    expected = join(list(open_data(tmp_path / "recorded").read()))
    assert not expected.columns[("truncated",)][expected.closing_rows - 1].all()
    found = join(list(open_data(target).read()))
    if found.acted_with is None:
        expected = in_env_space(PENDULUM.spaces()[1], expected)
    assert_same_steps(found, expected)


@pytest.mark.parametrize("target", ["minari:{}/again-v0", "{}/again.hdf5", "{}/again"])
def test_a_data_set_is_never_overwritten(target: str, tmp_path: Path) -> None:
    record(tmp_path / "recorded", PENDULUM, samples=1)
    data = open_data(tmp_path / "recorded")
    convert(data, target.format(tmp_path))
    with pytest.raises(ConfigError, match="again"):
        convert(data, target.format(tmp_path))


@pytest.mark.parametrize("target", ["{}/again.hdf5", "{}/again"])
def test_a_format_of_minari_is_for_minari(target: str, tmp_path: Path) -> None:
    record(tmp_path / "recorded", PENDULUM, samples=1)
    with pytest.raises(ConfigError, match="--format arrow"):
        convert(open_data(tmp_path / "recorded"), target.format(tmp_path), "arrow")


@pytest.mark.parametrize("name", ["pendulum", "a b-v0", "../pendulum-v0"])
def test_a_name_that_minari_does_not_accept_is_refused(name: str, tmp_path: Path) -> None:
    record(tmp_path, PENDULUM, samples=1)
    with pytest.raises(ConfigError, match="expected a name with a version"):
        convert(open_data(tmp_path), f"minari:{name}")


def test_d4rl_has_no_nested_observations(tmp_path: Path) -> None:
    write_shard(tmp_path, "part", nested_steps(), NESTED)
    with pytest.raises(ConfigError, match="no nested observations"):
        convert(open_data(tmp_path), str(tmp_path / "nested.hdf5"))


def test_actions_of_a_discrete_space_that_starts_above_zero_are_the_environment_s(tmp_path: Path) -> None:
    columns = {
        ("obs",): np.zeros((2, 1), np.float32),
        ("actions",): np.array([0, 1]),
        ("rewards",): np.ones(2, np.float32),
        ("terminated",): np.array([False, True]),
        ("truncated",): np.zeros(2, bool),
    }
    steps = close_episodes(columns, np.array([1]), {("obs",): np.zeros((1, 1), np.float32)})
    steps = Steps(steps.columns, {"normalize": True, "clip": False})
    spec = DataSpec(spaces.Box(-1, 1, (1,)), spaces.Discrete(2, start=5))
    write_shard(tmp_path / "shards", "part", steps, spec)
    name = f"minari:{tmp_path / 'counted-v0'}"
    convert(open_data(tmp_path / "shards"), name)
    assert next(open_data(name).read()).columns[("actions",)][:2].tolist() == [5, 6]
