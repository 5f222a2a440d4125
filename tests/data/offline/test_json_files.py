"""Batches written to JSON lines come back as they were, in an order that a seed names."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path

import lz4.frame
import numpy as np
import pytest
import torch

from lightning_rl.data.offline import JsonReader, JsonWriter
from lightning_rl.data.offline.data_set import open_data
from lightning_rl.errors import ConfigError
from lightning_rl.sample_batch import MultiAgentBatch, SampleBatch


def batch(number: int) -> SampleBatch:
    return SampleBatch(
        obs={"image": torch.full((3, 2, 2), number, dtype=torch.uint8), "vector": torch.rand(3, 2)},
        actions=torch.tensor([number, 1, 2]),
        rewards=torch.tensor([0.1, -1e30, float(number)]),
        terminated=torch.tensor([True, False, True]),
        empty=torch.zeros(3, 0),
    )


def test_every_column_comes_back_with_its_dtype_and_shape(tmp_path: Path) -> None:
    written = batch(7)
    JsonWriter(tmp_path).write(written)
    read = JsonReader(tmp_path).next()
    assert read.columns == written.columns and read.obs.columns == ["image", "vector"]
    for name in ("actions", "rewards", "terminated", "empty"):
        assert read[name].dtype == written[name].dtype
        assert torch.equal(read[name], written[name])
    assert torch.equal(read.obs.image, written.obs.image) and torch.equal(read.obs.vector, written.obs.vector)


def test_a_pass_gives_each_batch_once_in_an_order_of_the_seed(tmp_path: Path) -> None:
    writer = JsonWriter(tmp_path, max_file_size=2000)
    for number in range(9):
        writer.write(batch(number))
    assert len(list(tmp_path.glob("*.json"))) > 1
    orders = []
    for seed in (0, 0, 1):
        reader = JsonReader(str(tmp_path / "*.json"), seed=seed)
        passes = [[int(reader.next().actions[0]) for _ in range(len(reader))] for _ in range(2)]
        assert sorted(passes[0]) == sorted(passes[1]) == list(range(9)) and passes[0] != passes[1]
        orders.append(passes)
    assert orders[0] == orders[1] != orders[2]


def test_a_new_writer_keeps_the_files_that_exist(tmp_path: Path) -> None:
    for number in range(2):
        JsonWriter(tmp_path).write(batch(number))
    assert len(JsonReader(tmp_path)) == 2


def test_rllib_s_names_and_packing_are_read_as_steps(tmp_path: Path) -> None:
    """A file of Ray 2.60's JsonWriter: new_obs, dones, eps_id, packed observations; files may repeat an id."""
    for number in range(2):
        obs = np.arange(12, dtype=np.float32).reshape(4, 3) + number
        line = {
            "type": "SampleBatch",
            "obs": packed(obs),
            "new_obs": packed(obs + 3),
            "actions": [0, 1, 1, 0],
            "rewards": [1.0, 1.0, 1.0, 1.0],
            "dones": [False, True, False, False],
            "eps_id": [7, 7, 7, 7],
            "agent_index": [0, 0, 1, 1],
            "t": [0, 1, 0, 1],
            "action_logp": [-0.5, -0.25, -1.0, -1.0],
            "infos": [{}, {}, {}, {}],
        }
        (tmp_path / f"output-{number}.json").write_text(json.dumps(line) + "\n")
    (steps,) = open_data(tmp_path).read()
    assert steps.closing_rows.tolist() == [2, 5, 8, 11]
    assert steps.columns[("obs",)][[0, 2, 6]].tolist() == [[0, 1, 2], [6, 7, 8], [1, 2, 3]]
    assert np.flatnonzero(steps.columns[("terminated",)]).tolist() == [1, 7]
    assert not steps.columns[("truncated",)].any()  # `dones` would say so
    assert steps.columns[("action_logp",)][:2].tolist() == [-0.5, -0.25]


def packed(column: np.ndarray) -> str:
    return base64.b64encode(lz4.frame.compress(pickle.dumps(column))).decode()


def test_plain_lists_are_read(tmp_path: Path) -> None:
    (tmp_path / "hand.json").write_text('{"type": "SampleBatch", "obs": [[1.5], [2]], "actions": [0, 1]}\n\n')
    read = JsonReader([tmp_path / "hand.json"]).next()
    assert torch.equal(read.obs, torch.tensor([[1.5], [2.0]])) and read.actions.dtype == torch.int64


@pytest.mark.parametrize("content", ["", "[1]\n", '{"obs": [1]}\n', "nonsense\n"])
def test_a_line_that_is_no_batch_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "file.json").write_text(content)
    with pytest.raises(ConfigError, match=r"no(t a)? batch"):
        JsonReader(tmp_path).next()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agent_index": [0]}, "line 2: agent_index has the shape"),
        ({"eps_id": [1]}, "batch 2: episode has 1 rows"),
        ({"eps_id": [[1, 2], [1, 2]]}, "batch 2: episode has 4 rows"),
        ({"obs": [[1.0], [2.0]]}, "batch 2: rows of obs are of shape"),
        ({"obs": {"x": [1.0, 2.0]}}, "line 2: this is not a batch"),
        ({"rewards": 1.0}, "line 2: this is not a batch"),
    ],
)
def test_a_batch_of_another_form_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    steps = {"type": "SampleBatch", "obs": [[1.0, 2.0], [3.0, 4.0]], "actions": [0, 1], "rewards": [1.0, 1.0]}
    steps |= {"dones": [False, True], "eps_id": [1, 1]}
    file = tmp_path / "output.json"
    file.write_text(f"{json.dumps(steps)}\n{json.dumps({**steps, **changes})}\n")
    with pytest.raises(ConfigError, match=message):
        open_data(str(file))


def test_several_policies_are_written_as_rllib_s_multi_agent_batch(tmp_path: Path) -> None:
    several = MultiAgentBatch({"left": batch(1), "right": batch(2)}, 3)
    JsonWriter(tmp_path).write(several)
    (line,) = next(tmp_path.glob("*.json")).read_text().splitlines()
    assert json.loads(line)["count"] == 3 and set(json.loads(line)["policy_batches"]) == {"left", "right"}
    with pytest.raises(ConfigError, match="left, right"):
        JsonReader(tmp_path).next()


def test_before_rllib_2_3_an_end_was_called_done(tmp_path: Path) -> None:
    JsonWriter(tmp_path).write(batch(1))
    written = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert written["dones"] == written["terminateds"] == [True, False, True]


def test_a_list_of_files_and_patterns_is_one_data_set(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        line = {"type": "SampleBatch", "obs": [[0.5]], "actions": [1], "rewards": [1.0], "dones": [True]}
        (tmp_path / f"{name}.json").write_text(json.dumps(line) + "\n")
    found = open_data([str(tmp_path / "a.json"), str(tmp_path / "[bc].json")])
    (steps,) = found.read()
    assert steps.closing_rows.tolist() == [1, 3, 5]
