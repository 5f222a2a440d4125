"""Tables, .npz and HDF5 files of one's own: where episodes end, what actions are, and what is refused."""

from __future__ import annotations

import zipfile
from datetime import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
import torch
from gymnasium import spaces
from pyarrow import parquet

from lightning_rl.data.offline.data_set import open_data
from lightning_rl.data.offline.steps import Steps, episodes_for
from lightning_rl.data.offline.summary import summary
from lightning_rl.errors import ConfigError
from lightning_rl.policies import BC, DQN, MARWIL, DiscreteCQL
from lightning_rl.policies.off_policy_estimation import estimate_value
from tests.data.offline.recorded import source
from tests.data.small_runs import fit

COLUMNS = {"obs": ["x", "y"], "action": "push", "reward": "gain", "episode": "session", "t": "time"}
LOG = """session,time,x,y,push,gain,failed
b,0,1,2,0,0.5,false
b,1,3,4,2,0.5,true
a,1,7,8,1,2.0,false
a,0,5,6,1,1.0,false
"""


def read(file: Path, columns: Any = None) -> Steps:
    (steps,) = open_data(file, columns).read()
    return steps


def column(steps: Steps, name: str) -> list[Any]:
    return steps.columns[(name,)].tolist()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log.csv").write_text(LOG)
    return tmp_path / "log.csv"


def test_a_log_without_ends_terminates_with_each_episode_s_last_row(log: Path) -> None:
    """Episodes in the order of their first rows, rows in the order of time; a closing row repeats the last one."""
    steps = read(log, COLUMNS)
    assert column(steps, "obs") == [[1, 2], [3, 4], [3, 4], [5, 6], [7, 8], [7, 8]]
    assert column(steps, "actions") == [0, 2, 0, 1, 1, 0]
    assert column(steps, "terminated") == [False, True, False, False, True, False]
    assert column(steps, "valid") == [True, True, False, True, True, False]
    assert open_data(log, COLUMNS).spec.action_space == spaces.Discrete(3)


def test_a_step_that_did_not_terminate_closes_its_episode_where_no_next_observation_is_recorded(log: Path) -> None:
    steps = read(log, {**COLUMNS, "terminated": "failed"})
    assert column(steps, "valid") == [True, True, False, True, False]
    assert column(steps, "terminated") == [False, True, False, False, False]


def test_a_parquet_table_is_read_as_a_csv(log: Path, tmp_path: Path) -> None:
    csv = require_csv(log)
    parquet.write_table(csv, tmp_path / "log.parquet")
    first, second = read(log, COLUMNS), read(tmp_path / "log.parquet", COLUMNS)
    for path, values in first.columns.items():
        assert np.array_equal(values, second.columns[path])


def require_csv(file: Path) -> pa.Table:
    from pyarrow import csv

    return csv.read_csv(file)


def test_a_time_limit_truncates_the_step_before_the_one_that_closes_the_episode(tmp_path: Path) -> None:
    """Returns 2, of an episode that terminates, and 2 and 1 of those whose last reward is dropped with their last step.

    An end that only the column of episodes shows is a time limit unless the table has a column for these.
    """
    (tmp_path / "log.csv").write_text(
        "episode,obs,action,reward,terminated,limit\n"
        "0,0,0,1,0,0\n0,1,0,1,1,0\n1,2,0,1,0,0\n1,3,0,1,0,0\n1,4,0,1,0,1\n2,5,0,1,0,0\n2,6,0,1,0,0\n3,7,0,1,0,0\n"
    )
    columns = {name: name for name in ("episode", "obs", "action", "reward", "terminated")}
    data = open_data(tmp_path / "log.csv", columns)
    assert column(read(tmp_path / "log.csv", columns), "truncated") == [False] * 4 + [True, False, True] + [False] * 2
    found = summary(data)
    assert (found["complete"], found["terminated"], found["returns"]["mean"]) == (3, 1, 5 / 3)
    with_limits = summary(open_data(tmp_path / "log.csv", {**columns, "truncated": "limit"}))
    assert (with_limits["complete"], with_limits["returns"]["mean"]) == (2, 2.0)


def test_two_sessions_that_number_their_episodes_alike_are_told_apart_or_refused(tmp_path: Path) -> None:
    """By a second column; without the column of episodes, each begins where the time does not rise."""
    sessions = "day,episode,t,obs,action,reward\n" + "".join(
        f"{day},{episode},{t},{day == 'tue'},{t},1\n" for day in ("mon", "tue") for episode in (0, 1) for t in (0, 1, 2)
    ).replace("False", "0").replace("True", "1")
    (tmp_path / "log.csv").write_text(sessions)
    columns = {name: name for name in ("obs", "action", "reward", "t")}
    with pytest.raises(ConfigError, match=r"row 6 is the second of episode 0 with t=0: .*episode: \[session, number\]"):
        open_data(tmp_path / "log.csv", {**columns, "episode": "episode"})
    for each in ({"episode": ["day", "episode"]}, {}):
        steps = read(tmp_path / "log.csv", {**columns, **each})
        assert steps.closing_rows.tolist() == [3, 7, 11, 15] and steps.whole.all()
        assert steps.columns[("obs",)].flatten().tolist() == [0] * 8 + [1] * 8


@pytest.mark.parametrize("suffix", ["npz", "hdf5"])
def test_d4rl_s_names_are_read_with_time_limits_and_next_observations(tmp_path: Path, suffix: str) -> None:
    """Action spaces are the range that occurs; log-probabilities are read from the behavior policy's."""
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(2, 4, 3)).astype(np.float32)  # two episodes of 3 steps
    arrays = {
        "observations": seen[:, :-1].reshape(6, 3),
        "next_observations": seen[:, 1:].reshape(6, 3),
        "actions": rng.uniform(-1, 1, (6, 2)).astype(np.float32),
        "rewards": np.arange(6, dtype=np.float32),
        "terminals": np.array([0, 0, 1, 0, 0, 0], bool),
        "timeouts": np.array([0, 0, 0, 0, 0, 1], bool),
        "infos/action_log_probs": np.linspace(-1, 0, 6, dtype=np.float32),
    }
    file = tmp_path / f"data.{suffix}"
    if suffix == "npz":
        np.savez_compressed(file, **arrays)
    else:
        with h5py.File(file, "w") as content:
            for name, array in arrays.items():
                content.create_dataset(name, data=array, compression="gzip")
    steps = read(file)
    valid = steps.columns[("valid",)]
    assert valid.tolist() == [True, True, True, False, True, True, True, False]
    for name, of_file in (("obs", "observations"), ("actions", "actions"), ("rewards", "rewards")):
        assert np.array_equal(steps.columns[(name,)][valid], arrays[of_file])
    assert np.array_equal(steps.columns[("obs",)][~valid], arrays["next_observations"][[2, 5]])
    assert column(steps, "truncated") == [False] * 6 + [True, False]
    assert np.array_equal(steps.columns[("action_logp",)][valid], arrays["infos/action_log_probs"])
    space = open_data(file).spec.action_space
    assert isinstance(space, spaces.Box) and np.array_equal(space.low, arrays["actions"].min(0))


def test_transitions_in_random_order_keep_their_next_observations(tmp_path: Path) -> None:
    """Rows 1 and 2 follow one another, all others are alone; where an episode begins is unknown."""
    obs = np.array([[0.0], [1.0], [2.0], [7.0], [5.0]])
    arrays = {"obs": obs, "next_obs": np.array([[9.0], [2.0], [3.0], [8.0], [6.0]]), "terminated": [1, 0, 0, 0, 1]}
    np.savez(tmp_path / "a.npz", actions=np.arange(5), rewards=np.ones(5), **arrays)
    steps = read(tmp_path / "a.npz")
    valid = np.flatnonzero(steps.columns[("valid",)])
    assert np.array_equal(steps.columns[("obs",)][valid], obs)
    assert np.array_equal(steps.columns[("obs",)][valid + 1], arrays["next_obs"])
    assert steps.closing_rows.tolist() == [1, 4, 6, 8] and not steps.columns[("truncated",)].any()
    assert (steps.columns[("t",)][valid] > 0).all() and summary(open_data(tmp_path / "a.npz"))["complete"] == 0
    np.savez(tmp_path / "b.npz", obs=obs.repeat(2, 1), next_obs=obs, actions=np.arange(5), rewards=np.ones(5))
    with pytest.raises(ConfigError, match=r"next_obs have shape \[1\], and those of obs \[2\]"):
        open_data(tmp_path / "b.npz")


@pytest.mark.parametrize(
    ("actions", "space"),
    [
        ([1, 3, 2], spaces.Discrete(3, start=1)),
        ([-1, 0, 1], spaces.Discrete(3, start=-1)),
        ([0.0, 1.0, 0.0], spaces.Discrete(2)),
        ([[2], [0], [1]], spaces.Discrete(3)),
        ([0.0, 0.5, 1.0], spaces.Box(0, 1, (1,))),
        ([[0, 1], [1, 0], [0, 0]], spaces.Box(0, 1, (2,))),
    ],
)
def test_a_column_of_whole_numbers_is_discrete_over_the_range_that_occurs(
    tmp_path: Path, actions: Any, space: Any
) -> None:
    np.savez(tmp_path / "a.npz", obs=np.zeros((3, 2)), actions=np.array(actions), rewards=np.ones(3))
    assert open_data(tmp_path / "a.npz").spec.action_space == space


@pytest.mark.parametrize("kind", [BC, MARWIL, DQN, DiscreteCQL])
@pytest.mark.parametrize("start", [1, -1])
def test_policies_learn_from_actions_that_are_not_counted_from_0(tmp_path: Path, kind: Any, start: int) -> None:
    """The action is `start` where the observation is negative, else `start` + 1, which the reward says as well.

    The estimate reads closing rows, whose action is none.
    """
    rng = np.random.default_rng(0)
    obs = rng.choice([-1.0, 1.0], 256)
    best, every = (obs > 0).astype(int), rng.integers(0, 2, 256)
    actions = best if kind is BC else every
    rewards = {"rewards": (actions == best) * 1.0, "action_logp": np.full(256, np.log(0.5))}
    arrays = {"obs": obs, "actions": actions + start, **rewards, "terminated": np.ones(256)}
    np.savez(tmp_path / "a.npz", **arrays)
    data = open_data(tmp_path / "a.npz")
    policy = kind(data.spec.observation_space, data.spec.action_space, lr=0.02, model={"fcnet_hiddens": [32]})
    offline = source(policy, tmp_path / "a.npz", batch_size=64, rows_per_iteration=256)
    for _ in range(100):
        policy.learn_on_batch(offline.next_episodes() if policy.imitates else offline.buffer.sample(64, rng))
    chosen = policy.compute_actions(torch.tensor([[-1.0], [1.0]]), explore=False)[0]
    assert policy.action_transform.to_env(chosen).tolist() == [start, start + 1]
    fragment = episodes_for(policy, data.read(), data.name)
    estimates = estimate_value(policy, fragment, estimators=["wis"], epsilon=None if policy.imitates else 0.01)
    assert estimates["wis"].value > 0.8


def test_an_action_that_never_changes_is_refused_unless_an_environment_names_its_bounds(tmp_path: Path) -> None:
    actions = np.array([[0.5, 0.25], [0.0, 0.25], [1.0, 0.25]])
    np.savez(tmp_path / "a.npz", obs=np.zeros((3, 2)), actions=actions, rewards=np.ones(3))
    spec = open_data(tmp_path / "a.npz").spec
    with pytest.raises(ConfigError, match=r"entry 1 of the actions is 0\.25 in all rows"):
        source(BC(spec.observation_space, spec.action_space), tmp_path / "a.npz")
    assert source(BC(spec.observation_space, spaces.Box(-1, 1, (2,))), tmp_path / "a.npz").steps == 3


BOX, PUSH = spaces.Box(-1, 1, (4,)), spaces.Discrete(2)


@pytest.mark.parametrize(
    ("observation_space", "action_space", "obs", "actions", "message"),
    [
        (BOX, PUSH, np.zeros((2, 4)), [0.2, 1], r"actions has 0\.2.*; the space Discrete\(2\)"),
        (BOX, spaces.Discrete(2, start=1), np.zeros((2, 4)), [1, 0], r"actions has 0; .* allows 1 to 2"),
        (BOX, spaces.MultiDiscrete([2, 3]), np.zeros((2, 4)), [[1, 2], [1, 3]], r"has 3; .* to \[1, 2\]"),
        (BOX, spaces.MultiBinary(2), np.zeros((2, 4)), [[1, 0], [2, 0]], r"actions has 2;"),
        (BOX, spaces.Box(0, 3, (1,), np.int64), np.zeros((2, 4)), [4, 0], r"actions has 4;"),
        (
            spaces.Box(0, 255, (2, 2), np.uint8),
            PUSH,
            np.full((2, 2, 2), 0.5),
            [0, 1],
            r"obs has 0\.5; .* uint8",
        ),
        (spaces.Box(-1, 1, (2, 3)), PUSH, np.zeros((2, 3, 2)), [0, 1], r"shape \[3, 2\]; the space .* \[2, 3\]"),
    ],
)
def test_values_that_do_not_fit_the_environment_s_spaces_are_refused(
    tmp_path: Path, observation_space: Any, action_space: Any, obs: Any, actions: Any, message: str
) -> None:
    """Nothing is rounded, wrapped, or reshaped to another order."""
    np.savez(tmp_path / "a.npz", obs=obs, actions=np.array(actions), rewards=np.ones(2), terminated=np.ones(2))
    with pytest.raises(ConfigError, match=message):
        read(tmp_path / "a.npz").of_spaces(observation_space, action_space, "a.npz")


def test_flat_rows_take_the_shape_of_the_environment_s_spaces(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", obs=np.arange(12).reshape(2, 6), actions=[0.5, 1.0], rewards=np.ones(2))
    steps = read(tmp_path / "a.npz").of_spaces(spaces.Box(0, 255, (2, 3), np.uint8), spaces.Box(-1, 1, (1,)), "a.npz")
    assert steps.columns[("obs",)][1].tolist() == [[6, 7, 8], [9, 10, 11]]
    assert steps.columns[("actions",)].tolist() == [[0.5], [1.0], [0.0]]


@pytest.mark.parametrize(
    ("columns", "text", "message"),
    [
        ({**COLUMNS, "obs": ["x", "z"]}, LOG, r"has no column 'z'.* It has session, time, x, y, push"),
        ({**COLUMNS, "reword": "gain"}, LOG, r"data\.columns\.reword is unknown\. Did you mean 'reward'"),
        ({"obs": "x"}, LOG, r"has no actions, rewards: name its columns with data\.columns"),
        (COLUMNS, LOG.replace("3,4,2", "3,,2"), r"column 'y' is empty in 1 rows, such as row 1"),
        (COLUMNS, LOG.replace("3,4,2", "3,inf,2"), r"obs has .*inf.* in row 1, and such values in 1 rows"),
        (COLUMNS, LOG.replace("3,4,2", "3,four,2"), r"holds .*; expected numbers"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_clear_error(
    log: Path, columns: dict[str, Any], text: str, message: str
) -> None:
    log.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read(log, columns)


@pytest.mark.parametrize("given", ["list", "pattern", "directory"])
def test_several_files_are_one_data_set_whose_episodes_end_with_their_file(tmp_path: Path, given: str) -> None:
    """Both files number their episodes from 0; the second has an action that the first has not. One is named twice."""
    (tmp_path / "a.csv").write_text("episode,obs,action,reward,t\n0,1,0,1,0\n0,2,1,1,1\n1,3,0,1,0\n")
    (tmp_path / "b.csv").write_text("episode,obs,action,reward,t\n0,4,2,1,0\n0,5,0,1,1\n")
    files = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    source = {"list": [*files, files[0]], "pattern": str(tmp_path / "*.csv"), "directory": tmp_path}[given]
    data = open_data(source)
    (steps,) = data.read()
    assert column(steps, "obs") == [[each] for each in (1, 2, 2, 3, 3, 4, 5, 5)]
    assert column(steps, "terminated") == [False, True, False, True, False, False, True, False]
    assert data.spec.action_space == spaces.Discrete(3)
    without_numbers = {"obs": "obs", "actions": "action", "rewards": "reward", "t": "t"}
    (steps,) = open_data(source, without_numbers).read()
    assert summary(open_data(source, without_numbers))["episodes"] == 3


def test_files_of_several_kinds_or_forms_are_refused(log: Path) -> None:
    (log.parent / "b.csv").write_text(LOG.replace("x,y", "x,z"))
    with pytest.raises(ConfigError, match=r"b\.csv has no column 'y'"):
        open_data(log.parent, COLUMNS)
    (log.parent / "b.csv").write_text("obs,actions,rewards,t\n1,1,1,0\n")
    log.write_text("obs,actions,rewards\n1,1,1\n")
    with pytest.raises(ConfigError, match=r"log\.csv: rows of t are missing"):
        open_data(log.parent)
    (log.parent / "notes.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"\.csv, \.json"):
        open_data(log.parent)


def test_lists_in_a_parquet_column_are_vectors_and_images(tmp_path: Path) -> None:
    images = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    columns = {"obs": images.tolist(), "actions": [[0.5, 1.0], [1.5, 2.0]], "rewards": [1.0, 2.0]}
    kinds = {"obs": pa.list_(pa.list_(pa.uint8())), "actions": pa.list_(pa.float64(), 2), "rewards": pa.float64()}
    parquet.write_table(pa.table(columns, pa.schema(kinds)), tmp_path / "a.parquet")
    steps = read(tmp_path / "a.parquet")
    assert (steps.columns[("obs",)][:2] == images).all() and steps.columns[("obs",)].dtype == np.uint8
    assert column(steps, "actions") == [[0.5, 1.0], [1.5, 2.0], [0, 0]]


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"obs": [[1.0, 2.0], [3.0]]}, "'obs' has lists of 1 to 2"),
        ({"obs": [[1.0, 2.0], [3.0, None]]}, "'obs' is empty in 1 rows, such as row 1"),
        ({"obs": [{"x": 1.0}, {"x": 2.0}]}, "'obs' holds object"),
        ({"rewards": [[1.0, 2.0], [3.0, 4.0]]}, r"rewards has rows of shape \[2\]"),
        ({"rewards": ["1.0", "much"]}, "'rewards' holds object, such as '1.0'"),
        ({"terminated": ["yes", "no"]}, "'terminated' holds"),
    ],
)
def test_columns_of_other_forms_are_refused_by_name(tmp_path: Path, columns: dict[str, Any], named: str) -> None:
    table = {"obs": [1.0, 2.0], "actions": [0, 1], "rewards": [1.0, 2.0], **columns}
    parquet.write_table(pa.table(table), tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match=named):
        open_data(tmp_path / "a.parquet")


def test_what_is_no_data_is_refused(tmp_path: Path) -> None:
    for name, content in (("a.npz", b"PK"), ("a.hdf5", b"\x89HDF"), ("a.parquet", b"PAR1"), ("a.zip", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError, match=name):
            open_data(tmp_path / name)
    with pytest.raises(ConfigError, match="does not exist"):
        open_data(tmp_path / "b")


def test_an_npz_of_objects_runs_nothing(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "harm",)

    arrays = {name: np.zeros(2) for name in ("obs", "actions", "rewards")}
    np.savez(tmp_path / "a.npz", **{**arrays, "actions": np.array([Evil(), Evil()])})
    with pytest.raises(ConfigError, match="allow_pickle"):
        open_data(tmp_path / "a.npz")
    assert not (tmp_path / "harm").exists()


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    """The header promises 10¹⁵ bytes."""
    header = tmp_path / "obs.npy"
    np.lib.format.open_memmap(header, "w+", np.float32, (1,))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.write(header, "obs.npy")
    content = (tmp_path / "a.npz").read_bytes()
    size = header.stat().st_size.to_bytes(4, "little")
    (tmp_path / "a.npz").write_bytes(content.replace(size, (2**32 - 2).to_bytes(4, "little")))
    with pytest.raises(ConfigError):
        open_data(tmp_path / "a.npz")
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for name in ("observations", "actions", "rewards"):
            file.create_dataset(name, (10**13,), np.float32, chunks=(1024,), compression="gzip")
    with pytest.raises(ConfigError, match="GiB"):
        open_data(tmp_path / "a.hdf5")


def test_hdf5_links_and_other_files_are_not_followed(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "secret.hdf5", "w") as file:
        file["rewards"] = np.ones(3)
    (tmp_path / "secret.raw").write_bytes(np.ones(3).tobytes())
    layout = h5py.VirtualLayout((3,), np.float64)
    layout[:] = h5py.VirtualSource(str(tmp_path / "secret.hdf5"), "rewards", (3,))

    def rewards(file: Any, kind: str) -> None:
        if kind == "link":
            file["rewards"] = h5py.ExternalLink(str(tmp_path / "secret.hdf5"), "rewards")
        elif kind == "external":
            file.create_dataset("rewards", (3,), np.float64, external=[(str(tmp_path / "secret.raw"), 0, 24)])
        else:
            file.create_virtual_dataset("rewards", layout)

    for kind, message in (("link", "no rewards"), ("external", "another file"), ("virtual", "another file")):
        with h5py.File(tmp_path / f"{kind}.hdf5", "w") as file:
            file["observations"], file["actions"] = np.zeros((3, 2)), np.zeros(3)
            rewards(file, kind)
        with pytest.raises(ConfigError, match=message):
            open_data(tmp_path / f"{kind}.hdf5")


def test_a_policy_learns_from_a_log_without_an_environment(log: Path, tmp_path: Path) -> None:
    """Its spaces are those of the log; the columns are those of the config."""
    given = "data.columns={obs: [x, y], action: push, reward: gain, episode: session, t: time}"
    keys = ["policy=dqn", "env=none", "data=offline", f"data.input={log}", given, "data.batch_size=4"]
    policy, _ = fit(tmp_path / "run", *keys, "data.steps_per_iteration=5", "total_env_steps=10")
    assert policy.gradient_steps == 10 and policy.action_space == spaces.Discrete(3)
    assert policy.observation_space.shape == (2,)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ({"done": [0, 1, 0, 1]}, ([1, 3], [])),
        ({"dones": [0, 1, 0, 1], "truncated": [0, 1, 0, 0]}, ([3], [1])),
        ({"dones": [0, 1, 0, 1], "terminated": [0, 1, 0, 0]}, ([1], [3])),
        ({"terminations": [0, 1, 0, 0], "truncations": [0, 0, 0, 1]}, ([1], [3])),
    ],
)
def test_ends_of_every_name_are_read(tmp_path: Path, ends: dict[str, Any], expected: Any) -> None:
    obs = np.arange(4.0)
    np.savez(tmp_path / "a.npz", obs=obs, next_obs=obs + 1, actions=[0, 1, 0, 1], rewards=np.ones(4), **ends)
    steps = read(tmp_path / "a.npz")
    valid = steps.columns[("valid",)]
    found = (steps.columns[(name,)][valid] for name in ("terminated", "truncated"))
    assert tuple(np.flatnonzero(each).tolist() for each in found) == expected


def test_columns_that_are_not_read_are_named(tmp_path: Path, caplog: Any) -> None:
    np.savez(tmp_path / "a.npz", obs=np.zeros(2), actions=[0, 1], rewards=np.ones(2), finished=[0, 1])
    read(tmp_path / "a.npz")
    assert "finished" in caplog.text
    caplog.clear()
    read(tmp_path / "a.npz", {"obs": "obs", "action": "actions", "reward": "rewards"})
    assert not caplog.text


@pytest.mark.parametrize("known", [(), ("episode",), ("t",), ("episode", "t")])
@pytest.mark.parametrize("ends", [True, False])
def test_episodes_in_random_order_are_whole_only_if_episode_and_time_are_known(
    tmp_path: Path, known: tuple[str, ...], ends: bool
) -> None:
    """40 episodes of 5 steps; without `terminated`, no row of an unknown order ends the task."""
    episode, t = np.repeat(np.arange(40), 5), np.tile(np.arange(5), 40)
    obs = np.stack([episode, t], 1).astype(float)
    columns = {
        "obs": obs,
        "next_obs": obs + np.array([0, 1]),
        "actions": t % 2,
        "rewards": np.ones(200),
        "terminated": t == 4,
    }
    columns |= {"terminated": t == 4, "episode": episode, "t": t}
    order = np.random.default_rng(0).permutation(200)
    names = [*list(columns)[: 5 if ends else 4], *known]
    np.savez(tmp_path / "a.npz", **{name: columns[name][order] for name in names})
    (steps,) = open_data(tmp_path / "a.npz").read()
    found, valid = summary(open_data(tmp_path / "a.npz")), steps.columns[("valid",)]
    if len(known) == 2:
        assert found["complete"] == found["episodes"] == 40 and found["returns"]["mean"] == 5
    else:
        assert found["complete"] == 0
    terminated = (steps.columns[("obs",)][valid][:, 1] == 4) & steps.columns[("terminated",)][valid]
    assert terminated.sum() == steps.columns[("terminated",)].sum() == (40 if ends or len(known) == 2 else 0)


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"action_prob": [0.5, 50.0, 0.5]}, r"action_prob has 50\.0 in row 1.*probabilities up to 1"),
        ({"action_prob": [0.5, 0.5, 0.0]}, r"action_prob has 0\.0 in row 2.*above 0"),
        ({"action_logp": [0.5, -0.5, -1.0]}, r"action_logp has 0\.5 in row 0"),
        ({"terminated": [0.0, np.nan, 1.0]}, r"terminated has nan in row 1"),
        ({"next_obs": [1.0, np.inf, 3.0]}, r"next_obs has inf in row 1"),
    ],
)
def test_impossible_numbers_are_refused_by_column_and_row(tmp_path: Path, columns: dict[str, Any], named: str) -> None:
    np.savez(tmp_path / "a.npz", **{"obs": np.zeros(3), "actions": [0, 1, 0], "rewards": np.ones(3), **columns})
    with pytest.raises(ConfigError, match=named):
        open_data(tmp_path / "a.npz")
    if "action_logp" in columns:  # of a Box, a density
        arrays = {"obs": np.zeros(3), "actions": [0.5, 1, 0], "rewards": np.ones(3), **columns}
        np.savez(tmp_path / "a.npz", **arrays)
        open_data(tmp_path / "a.npz")


def test_data_without_any_next_observation_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", obs=np.zeros(3), actions=[0, 1, 0], rewards=np.ones(3), truncated=np.ones(3))
    with pytest.raises(ConfigError, match="no step of 3 has a next observation"):
        open_data(tmp_path / "a.npz")


def test_columns_may_have_numbers_for_names_and_none_is_no_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("0,1,2,3\n0,1,1,20\n0,2,0,10\n")
    steps = read(tmp_path / "a.csv", {"obs": [0, 1], "actions": 2, "rewards": 3, "terminated": None})
    assert column(steps, "actions")[:2] == [1, 0]
    with pytest.raises(ConfigError, match=r"data\.columns\.obs=1\.5"):
        read(tmp_path / "a.csv", {"obs": 1.5, "actions": 2, "rewards": 3})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b"ep,x,y,a,r,x\n0,1,3,1,20,4\n", "two columns 'x'"),
        ("ep,x,y,a,r,stra\xdfe\n0,1,3,1,20,1\n".encode("latin-1"), "save it as UTF-8"),
        (b"ep,x,y,a,r\n", "no rows"),
        (b"ep,x,y,a,r\n0,1,2,left,1\n0,1,2,right,1\n", "'a' holds object, such as 'left'"),
    ],
)
def test_files_that_are_not_as_expected_are_refused(tmp_path: Path, text: bytes, named: str) -> None:
    (tmp_path / "a.csv").write_bytes(text)
    with pytest.raises(ConfigError, match=named):
        open_data(tmp_path / "a.csv", {"obs": ["x", "y"], "actions": "a", "rewards": "r"})


def test_decimals_and_times_of_day_are_numbers(tmp_path: Path) -> None:
    table = {
        "obs": pa.array([Decimal("1.5"), Decimal("2.5")], pa.decimal128(5, 2)),
        "t": pa.array([time(9), time(8)], pa.time64("us")),
        **{"actions": [0, 1], "rewards": [1.0, 2.0], "episode": [0, 0]},
    }
    parquet.write_table(pa.table(table), tmp_path / "a.parquet")
    assert column(read(tmp_path / "a.parquet"), "obs") == [[2.5], [1.5], [1.5]]
