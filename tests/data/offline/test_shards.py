"""Shards come back bit by bit, and none that was changed is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gymnasium import spaces
from pyarrow import parquet

from lightning_rl.data.offline.data_set import open_data
from lightning_rl.data.offline.shards import ShardError, read_shape, read_shard, write_shard
from lightning_rl.data.offline.steps import DataSpec, Steps, close_episodes
from lightning_rl.errors import ConfigError
from tests.data.offline.recorded import NESTED, nested_steps


def test_a_shard_comes_back_with_every_dtype_shape_and_bit(tmp_path: Path) -> None:
    written = nested_steps()
    file = write_shard(tmp_path, "worker000-00000", written, NESTED)
    assert read_shape(file) == (NESTED, 11)
    read = read_shard(file, NESTED)
    assert list(read.columns) == list(written.columns)
    for path, column in written.columns.items():
        assert read.columns[path].dtype == column.dtype
        assert np.array_equal(read.columns[path], column)


def test_one_shard_given_as_a_file_is_a_data_set_and_no_table(tmp_path: Path) -> None:
    """Read as a table, its closing rows would be steps. What it holds counts, not its name."""
    written = close_episodes(
        {
            ("obs",): np.arange(3.0, dtype=np.float32),
            ("actions",): np.array([0, 1, 1]),
            ("rewards",): np.ones(3, np.float32),
            ("terminated",): np.array([False, True, True]),
            ("truncated",): np.zeros(3, bool),
        },
        np.array([1, 2]),
        {("obs",): np.array([7.0, 8.0], np.float32)},
    )
    spec = DataSpec(spaces.Box(0, 9, ()), spaces.Discrete(5))
    file = write_shard(tmp_path, "a", written, spec)
    data = open_data(file)
    (read,) = data.read()
    assert (data.spec, data.rows) == (spec, 5) and np.array_equal(read.columns[("valid",)], written.columns[("valid",)])
    table = parquet.read_table(file)
    parquet.write_table(table.replace_schema_metadata(None), file)
    assert open_data(file).spec.inferred
    parquet.write_table(table, file)
    with pytest.raises(ShardError, match="does not have the digest"):
        list(open_data(file).read())


def damage(content: bytes, kind: str, rng: np.random.Generator) -> bytes:
    place = int(rng.integers(len(content)))
    if kind == "truncated":
        return content[:place]
    if kind == "flipped":
        return content[:place] + bytes([content[place] ^ (1 << int(rng.integers(8)))]) + content[place + 1 :]
    return content[:place] + bytes(64) + content[place + 64 :]


@pytest.mark.parametrize("count", [30, pytest.param(500, marks=pytest.mark.slow)])
def test_no_damaged_shard_is_read(tmp_path: Path, count: int) -> None:
    """Truncation, a flipped bit, 64 zeros: each is refused by the file's name, or skipped and counted."""
    rng = np.random.default_rng(0)
    good = write_shard(tmp_path / "good", "worker000-00000", nested_steps((30, 20)), NESTED)
    content, bad = good.read_bytes(), tmp_path / "bad" / good.name
    bad.parent.mkdir()
    for number in range(count):
        changed = damage(content, ("truncated", "flipped", "zeros")[number % 3], rng)
        if changed == content:
            continue
        bad.write_bytes(changed)
        with pytest.raises(ShardError, match=good.name):
            read_shard(bad)
        with pytest.raises(ConfigError, match=good.name):
            list(open_data(bad.parent).read())


def test_tables_of_another_origin_are_not_called_damaged(tmp_path: Path) -> None:
    """The message names the file that `data.columns` would describe."""
    write_shard(tmp_path, "worker000-00000", nested_steps(), NESTED)
    pq.write_table(pa.table({"x": [0.5], "push": [1]}), tmp_path / "log.parquet")
    with pytest.raises(ShardError, match=r"not a shard.*data\.input=.*log\.parquet.*data\.columns") as refused:
        open_data(tmp_path)
    assert "damaged" not in str(refused.value)


@pytest.mark.parametrize("given", ["list", "pattern"])
def test_a_list_or_pattern_of_shards_is_read_as_their_directory(tmp_path: Path, given: str) -> None:
    """As tables, their closing rows would be steps."""
    files = [str(write_shard(tmp_path, f"worker000-{n:05}", nested_steps(seed=n), NESTED)) for n in range(2)]
    found, expected = open_data(files if given == "list" else f"{tmp_path}/*.parquet"), open_data(tmp_path)
    assert found.spec == expected.spec and found.rows == expected.rows
    for own, other in zip(found.read(), expected.read(), strict=True):
        assert all((own.columns[path] == column).all() for path, column in other.columns.items())


def test_damaged_shards_are_left_out_and_named_on_request(tmp_path: Path) -> None:
    files = [write_shard(tmp_path, f"worker000-{n:05}", nested_steps(seed=n), NESTED) for n in range(3)]
    content = bytearray(files[1].read_bytes())
    content[100] ^= 1
    files[1].write_bytes(content)
    data = open_data(tmp_path, skip_damaged=True)
    assert [int(part.columns[("rewards",)].size) for part in data.read()] == [11, 11]
    assert list(data.damaged) == [str(files[1])]


def test_shards_of_other_environments_in_one_directory_are_refused(tmp_path: Path) -> None:
    write_shard(tmp_path, "a", nested_steps(), NESTED)
    more = spaces.Tuple((spaces.Discrete(4), spaces.Box(-2.0, 2.0, (1,))))
    write_shard(tmp_path, "b", nested_steps(), replace(NESTED, action_space=more))
    with pytest.raises(ShardError, match=r"/b-.*Discrete\(4\)"):
        list(open_data(tmp_path).read())


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("obs", "goal"), np.nan, r"'obs.goal' is not finite in 1 rows, such as row 2"),
        (("actions", "0"), 3, r"actions.0 has 3; the space Discrete\(3\) allows 0 to 2"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_by_file_and_column(
    tmp_path: Path, path: tuple[str, ...], value: float, named: str
) -> None:
    steps = nested_steps()
    steps.columns[path][2] = value
    file = write_shard(tmp_path, "a", steps, NESTED)
    with pytest.raises(ConfigError, match=f"{file.name}.*{named}"):
        read_shard(file)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    steps = nested_steps()
    columns = {path: column for path, column in steps.columns.items() if path != ("actions", "1")}
    with pytest.raises(ConfigError, match=r"no column 'actions\.1'; it has obs\.image"):
        read_shard(write_shard(tmp_path, "a", Steps(columns, steps.acted_with), NESTED))


def test_a_directory_without_shards_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no shard; expected \*\.parquet"):
        open_data(tmp_path)


def test_steps_get_closing_rows() -> None:
    """Two episodes of 2 steps: with final observations all 4 steps stay, without them the cut one loses its last."""
    columns = {
        ("obs",): np.arange(4.0),
        ("actions",): np.arange(1, 5),
        ("rewards",): np.ones(4, np.float32),
        ("terminated",): np.array([False, True, False, False]),
        ("truncated",): np.array([False, False, False, True]),
    }
    last = np.array([1, 3])
    closed = close_episodes(columns, last, {("obs",): np.array([10.0, 20.0])}).columns
    assert closed[("obs",)].tolist() == [0, 1, 10, 2, 3, 20]
    assert closed[("valid",)].tolist() == [True, True, False, True, True, False]
    assert closed[("actions",)].tolist() == [1, 2, 0, 3, 4, 0]
    closed = close_episodes(columns, last, None).columns
    assert closed[("obs",)].tolist() == [0, 1, 1, 2, 3]
    assert closed[("valid",)].tolist() == [True, True, False, True, False]
    assert closed[("truncated",)].tolist() == [False, False, False, True, False]
