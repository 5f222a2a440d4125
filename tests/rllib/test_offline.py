"""RLlib's words of offline data: files, functions and mixes as `input`, files as `output`."""

from __future__ import annotations

import base64
import json
import pickle
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import lz4.frame
import numpy as np
import pytest
from gymnasium import spaces

from lightning_rl.errors import ConfigError
from lightning_rl.rllib.agents.callbacks import DefaultCallbacks
from lightning_rl.rllib.default_configs import rllib_defaults
from lightning_rl.rllib.offline import (
    D4RLReader,
    DatasetReader,
    InputReader,
    IOContext,
    JsonReader,
    JsonWriter,
    MixedInput,
    OutputWriter,
    ShuffledInput,
)
from lightning_rl.rllib.offline.estimators import ImportanceSampling, WeightedImportanceSampling
from lightning_rl.rllib.offline.registry import register_input
from lightning_rl.rllib.offline.wis_estimator import WeightedImportanceSamplingEstimator
from lightning_rl.rllib.policy.sample_batch import SampleBatch
from tests.rllib.classic import trainer

SMALL = {"model": {"fcnet_hiddens": [16]}, "evaluation_num_episodes": 1}


def rows(first: int, count: int = 3) -> SampleBatch:
    obs = np.arange(first, first + count + 1, dtype=np.float32)[:, None]
    ends = np.arange(count) == count - 1
    columns = {"obs": obs[:-1], "new_obs": obs[1:], "actions": np.zeros(count, np.int64), "dones": ends}
    return SampleBatch({**columns, "rewards": np.ones(count, np.float32), "eps_id": np.full(count, first)})


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """1,500 steps of a PG that learns a little, by its key `output`."""
    made = trainer("PG", output=str(tmp_path / "demo"), train_batch_size=500, num_envs_per_worker=4, seed=3, **SMALL)
    for _ in range(3):
        made.train()
    made.stop()
    return tmp_path / "demo"


def test_output_writes_rllib_s_files_with_the_probability_of_each_action(demo: Path) -> None:
    (file,) = demo.iterdir()
    assert re.fullmatch(r"output-\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_worker-0_0\.json", file.name)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 3 and all(line["type"] == "SampleBatch" for line in lines)
    assert isinstance(lines[0]["obs"], str) and isinstance(lines[0]["actions"], list)
    assert np.allclose(np.log(lines[0]["action_prob"]), lines[0]["action_logp"], atol=1e-6)
    read = JsonReader(demo).next()
    assert read.count == len(lines[0]["rewards"]) == len(read["new_obs"]) and read["obs"].dtype == np.float32
    same = (read["eps_id"][1:] == read["eps_id"][:-1]) & ~read["dones"][:-1] & ~read["truncateds"][:-1]
    assert same.mean() > 0.9 and np.array_equal(read["new_obs"][:-1][same], read["obs"][1:][same])


def test_output_takes_sizes_columns_the_run_s_directory_and_a_function(tmp_path: Path) -> None:
    got: list[tuple[int, int]] = []

    class Counting(OutputWriter):
        def __init__(self, context: IOContext) -> None:
            self.context = context

        def write(self, sample_batch: Any) -> None:
            got.append((self.context.worker_index, sample_batch.count))

    made = trainer("PG", output=Counting, train_batch_size=60, **SMALL)
    made.train()
    made.stop()
    ((index, count),) = got
    assert index == 0 and count >= 60
    made = trainer("PG", output="logdir", output_max_file_size=10, output_compress_columns=[], train_batch_size=9)
    made.train(), made.train()
    made.stop()
    files = sorted(Path(made.logdir).glob("output-*.json"))
    assert [file.name[-6] for file in files] == ["0", "1"]
    assert len(json.loads(files[0].read_text())["obs"]) >= 9
    there = {"output": "dataset", "output_config": {"format": "json", "path": str(tmp_path / "there")}}
    made = trainer("PG", train_batch_size=60, **there)
    made.train()
    made.stop()
    assert len([*(tmp_path / "there").iterdir()]) == 1


def test_best_actions_are_written_with_probability_1(tmp_path: Path) -> None:
    made = trainer("PG", output=str(tmp_path), output_compress_columns=[], explore=False, train_batch_size=20, **SMALL)
    made.train()
    made.stop()
    (file,) = tmp_path.iterdir()
    written = json.loads(file.read_text().splitlines()[0])
    assert set(written["action_logp"]) == {0.0} and set(written["action_prob"]) == {1.0}


@pytest.mark.parametrize("name", ["DQN", "MARWIL", "BC"])
def test_files_train_without_workers(name: str, demo: Path) -> None:
    """RLlib reads `train_batch_size` rows for each gradient step."""
    made = trainer(name, input=str(demo), train_batch_size=100, timesteps_per_iteration=500, **SMALL)
    results = [made.train() for _ in range(2)]
    found = made.run_config
    made.stop()
    assert found["data"]["input"] == str(demo) and results[-1]["episodes_total"] == 0
    assert results[-1]["timesteps_total"] >= 200
    batches = results[-1]["timesteps_total"] // 100 if name == "DQN" else results[-1]["time/iterations"]
    assert results[-1]["gradient_steps"] == batches


def test_a_pattern_or_a_list_needs_no_environment(demo: Path) -> None:
    made = trainer("MARWIL", input=[f"{demo}/*.json"], train_batch_size=1000, lr=3e-3, **SMALL)
    from lightning_rl.rllib import MARWILTrainer  # type: ignore[attr-defined]

    alone = MARWILTrainer(config={"input": f"{demo}/*.json", "train_batch_size": 1000, **SMALL})
    assert alone.policy.observation_space.shape == (4,) and alone.train()["timesteps_total"] >= 1000
    alone.stop()
    made.stop()


@pytest.mark.parametrize("name", ["DQN", "MARWIL", "PG"])
def test_a_function_of_the_context_reads_in_the_place_of_workers(name: str, demo: Path) -> None:
    seen: list[IOContext] = []

    class Half(InputReader):
        def __init__(self, context: IOContext) -> None:
            seen.append(context)
            self.reader = JsonReader(context.input_config["path"], context)

        def next(self) -> Any:
            batch = self.reader.next()
            return batch[: batch.count // 2]

    starts = {"learning_starts": {"DQN": 100, "MARWIL": 0}[name]} if name != "PG" else {}
    made = trainer(name, input=Half, input_config={"path": str(demo)}, train_batch_size=100, **SMALL, **starts)
    result = made.train()
    made.stop()
    (context,) = seen
    halves = np.cumsum([batch.count // 2 for batch in JsonReader(demo).read_all_files()])
    assert result["timesteps_total"] in halves and result["episodes_total"] == 0
    assert context.worker.get_policy() is made.policy and context.log_dir == str(made.logdir)
    assert result["gradient_steps"] >= 1


@pytest.mark.parametrize("without", [(), ("eps_id",)])
def test_callbacks_and_output_get_each_batch_of_a_reader_once(without: tuple[str, ...], tmp_path: Path) -> None:
    """Three rows of a file, or those of the sampler, at a time; without "eps_id" they are numbered by "t"."""
    seen, trajectories = list[int](), list[int]()

    class Watching(DefaultCallbacks):
        def on_sample_end(self, *, worker: Any, samples: Any, **keywords: Any) -> None:
            assert worker.worker_index == 0 and len({*samples["eps_id"].tolist()}) <= samples.count
            seen.append(samples.count)

        def on_postprocess_trajectory(self, *, postprocessed_batch: Any, **keywords: Any) -> None:
            trajectories.append(postprocessed_batch.count)

    class Rows(InputReader):
        def next(self) -> Any:
            own = rows(0)
            own["obs"] = own["new_obs"] = np.zeros((3, 4), np.float32)
            own["dones"][:] = True
            for name in without:
                del own[name]
            return own

    sources = {lambda context: Rows(): 0.5, "sampler": 0.5}
    keys = {"output": str(tmp_path), "rollout_fragment_length": 5, "learning_starts": 10, "seed": 1}
    made = trainer("DQN", input=sources, callbacks=Watching, train_batch_size=5, **keys, **SMALL)
    steps = [made.train()["timesteps_this_iter"] for _ in range(20)]
    made.stop()
    assert 3 in seen and 5 in seen and sum(seen) == sum(steps) == sum(trajectories)
    (file,) = tmp_path.iterdir()
    assert [len(json.loads(line)["rewards"]) for line in file.read_text().splitlines()] == seen


@pytest.mark.parametrize("name", ["DQN", "MARWIL"])
def test_files_without_numbers_of_episodes_train_beside_callbacks(name: str, demo: Path) -> None:
    counts: list[int] = []

    class Watching(DefaultCallbacks):
        def on_postprocess_trajectory(self, *, postprocessed_batch: Any, **keywords: Any) -> None:
            counts.append(postprocessed_batch.count)

    made = trainer(name, input=str(demo), callbacks=Watching, train_batch_size=100, **SMALL)
    made.train()
    made.stop()
    assert sum(counts) >= 100


def test_a_mix_draws_recorded_and_sampled_batches_by_their_probabilities(demo: Path) -> None:
    register_input("demo of the test", lambda context: JsonReader(demo, context))
    sources = {"demo of the test": 0.5, "sampler": 0.5}
    made = trainer("DQN", input=sources, train_batch_size=50, rollout_fragment_length=10, seed=1, **SMALL)
    results = [made.train() for _ in range(40)]
    made.stop()
    steps = np.diff([0, *(each["timesteps_total"] for each in results)])
    recorded = [batch.count for batch in JsonReader(demo).read_all_files()]
    assert all(each in recorded or each <= 10 for each in steps)
    assert 8 < np.count_nonzero(steps <= 10) < 32
    assert results[-1]["episodes_total"] > 0


@pytest.mark.parametrize("given", [{"a": 0.5}, {"a": 0.5, "sampler": 0.6}, {}, 3, {"a": -1.0, "sampler": 2.0}], ids=str)
def test_an_input_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="input"):
        made = trainer("DQN", input=given, **SMALL)
        try:
            made.train()
        finally:
            made.stop()


def test_actions_of_files_are_normalized_unless_they_are(tmp_path: Path) -> None:
    """Pendulum's torques are in [−2, 2], a policy's actions in [−1, 1]."""
    written = rows(0, 4)
    written["obs"] = written["new_obs"] = np.zeros((4, 3), np.float32)
    written["actions"] = np.array([[-1.0], [0.5], [1.0], [0.0]], np.float32)
    JsonWriter(tmp_path).write(written)
    for normalized, expected in ((False, [-0.5, 0.25, 0.5, 0.0]), (True, [-1.0, 0.5, 1.0, 0.0])):
        for source in (str(tmp_path), lambda context: JsonReader(tmp_path, context)):
            keys = {"train_batch_size": 4, "learning_starts": 4, "actions_in_input_normalized": normalized, **SMALL}
            made = trainer("SAC", input=source, **keys)
            made.train()
            buffer, generator = made.datamodule.source.buffer, np.random.default_rng(0)
            found = {each for _ in range(20) for each in buffer.sample(4, generator).actions.flatten().tolist()}
            made.stop()
            assert sorted(found) == sorted(expected)


def test_readers_give_every_line_of_every_file(tmp_path: Path) -> None:
    for number in range(6):
        JsonWriter(tmp_path / str(number % 3)).write(rows(10 * number))
    files = [f"{tmp_path}/{number}/*.json" for number in range(3)]
    reader = JsonReader(files, IOContext(config={"train_batch_size": 1, "seed": 0}, worker_index=4))
    read = [int(reader.next()["obs"][0, 0]) for _ in range(12)]
    assert sorted(read) == sorted(2 * [0, 10, 20, 30, 40, 50])
    assert read[:2] == [10, 40], "worker 4 begins with file 4 % 3, and its lines are in order"
    assert [int(batch["obs"][0, 0]) for batch in reader.read_all_files()] == [0, 30, 10, 40, 20, 50]
    held = ShuffledInput(JsonReader(files[0]), 2, seed=0)
    assert sorted(int(held.next()["obs"][0, 0]) for _ in range(6))[:2] == [0, 0]
    joined = JsonReader(files, IOContext(config={"train_batch_size": 7, "num_workers": 2})).next()
    assert joined.count == 6, "a worker's share of 7 rows is 4"


def test_a_line_that_is_no_batch_and_a_missing_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"type": "SampleBatch", "obs": "gASVAAAA"}\n')
    with pytest.raises(ConfigError, match=r"a\.json, line 1"):
        JsonReader(tmp_path).next()
    with pytest.raises(ConfigError, match="matches no file"):
        JsonReader(tmp_path / "b.json")


class Dataset:
    """What `DatasetReader` needs of Ray's."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        self.lines = lines

    def random_shuffle(self, *, seed: int | None = None) -> Dataset:
        return self

    def iter_rows(self) -> Any:
        return iter(self.lines)


def test_rows_of_a_dataset_and_of_parquet_are_batches(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    JsonWriter(tmp_path).write(rows(5))
    line = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert DatasetReader(Dataset([line])).next()["obs"].tolist() == [[5.0], [6.0], [7.0]]
    with pytest.raises(ConfigError, match="no rows"):
        DatasetReader(Dataset([])).next()
    parquet.write_table(pa.Table.from_pylist([line]), tmp_path / "rows.parquet")
    paths = {"paths": str(tmp_path / "rows.parquet"), "format": "parquet"}
    for options in (paths, {"loader_fn": lambda: Dataset([line])}, {"paths": str(tmp_path), "format": "json"}):
        made = trainer("DQN", input="dataset", input_config=options, **SMALL)
        source = made.datamodule.source.run_plan.make(IOContext(config={"input_config": options}))
        made.stop()
        assert source.next()["obs"].tolist() == [[5.0], [6.0], [7.0]]


def test_d4rl_s_files_are_read_without_its_package(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "hopper.hdf5", "w") as file:
        file["observations"] = np.arange(6, dtype=np.float32)[:, None]
        file["actions"], file["rewards"] = np.full((6, 1), 0.5, np.float32), np.ones(6, np.float32)
        file["terminals"], file["timeouts"] = np.arange(6) == 2, np.arange(6) == 5
    reader = D4RLReader(tmp_path / "hopper.hdf5", IOContext(config={"train_batch_size": 5}))
    batch = reader.next()
    assert sorted(batch["obs"][:, 0]) == [0, 1, 2, 3, 4], "the last step has no next observation"
    assert batch["dones"].sum() == 1


def test_a_mix_s_probabilities_are_those_of_its_sources(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 100)):
        JsonWriter(tmp_path / name).write(rows(first))
    mixed = MixedInput({str(tmp_path / "a"): 0.8, str(tmp_path / "b"): 0.2}, IOContext())
    drawn = [mixed.next()["obs"][0, 0] for _ in range(200)]
    assert 0.7 < np.mean(np.array(drawn) == 0) < 0.9


class Fixed:
    """Takes the action 1 with the probability ¼."""

    action_space = spaces.Discrete(2)

    def compute_log_likelihoods(self, actions: np.ndarray, obs: np.ndarray) -> np.ndarray:
        return np.log(np.where(actions == 1, 0.25, 0.75))


def test_estimates_have_rllib_s_names_and_values() -> None:
    """μ = ½, γ = ½. Episode 1, actions 1 0, rewards 1 2: ratios ½, ½ · 3/2 = ¾: ½ · 1 + ½ · ¾ · 2 = 1.25.

    Episode 2, action 0, reward 4: 3/2 · 4 = 6. Weighted: means ½ + 3/2 over 2 = 1 at the first step, ¾ at the second,
    so ½ · 1 + ½ · 1 · 2 = 1.5, and 6.
    """
    batch = SampleBatch(
        obs=np.zeros((3, 1), np.float32), actions=np.array([1, 0, 0]), rewards=np.array([1.0, 2.0, 4.0], np.float32)
    )
    batch["eps_id"], batch["action_prob"] = np.array([5, 5, 6]), np.full(3, 0.5)
    found = ImportanceSampling(Fixed(), 0.5).estimate(batch)
    assert found["v_behavior"] == pytest.approx(3.0) and found["v_target"] == pytest.approx(3.625)
    assert found["v_target_std"] == pytest.approx(2.375) and found["v_delta"] == pytest.approx(0.625)
    weighted = WeightedImportanceSampling(Fixed(), 0.5).estimate(batch)
    assert weighted["v_target"] == pytest.approx(3.75) and weighted["v_gain"] == pytest.approx(1.25)
    name, metrics = WeightedImportanceSamplingEstimator(Fixed(), 0.5).estimate(batch)
    assert name == "wis" and metrics == pytest.approx({"V_prev": 3.0, "V_step_WIS": 3.75, "V_gain_est": 1.25})
    one_by_one = WeightedImportanceSamplingEstimator(Fixed(), 0.5)
    first, second = (one_by_one.estimate(batch[rows]).metrics["V_step_WIS"] for rows in (slice(2), slice(2, 3)))
    assert (first, second) == pytest.approx((2.0, 6.0))  # the means are those of the episodes so far: ½ and ¾; then 1
    bandit = ImportanceSampling(Fixed(), 0.5, epsilon_greedy=0.5).estimate(batch, split_batch_by_episode=False)
    assert bandit["v_target"] == pytest.approx((0.75 * 1 + 1.25 * 2 + 1.25 * 4) / 3)
    del batch["action_prob"]
    with pytest.raises(ConfigError, match="action_prob"):
        ImportanceSampling(Fixed(), 0.5).estimate(batch)


def test_input_evaluation_estimates_on_held_out_episodes(demo: Path) -> None:
    keys = {"input": str(demo), "train_batch_size": 100, "gamma": 0.9, **SMALL}
    made = trainer("MARWIL", input_evaluation=["is", "wis", "simulation"], **keys)
    found = made.train()["off_policy_estimator"]
    assert set(found) == {"is", "wis"} and set(made.evaluate()["evaluation"]["off_policy_estimator"]) == set(found)
    assert made.run_config["evaluation"]["estimators"] == ["pdis", "wis"] and made.datamodule.source.held_out
    made.stop()
    assert 5 < found["is"]["V_prev"] == found["wis"]["v_behavior"] < 10, "the mean return is near 1 / (1 − 0.9)"
    assert found["wis"]["V_gain_est"] == pytest.approx(found["wis"]["V_step_WIS"] / found["wis"]["V_prev"])
    methods = {"mine": {"type": ImportanceSampling}}
    made = trainer("DQN", off_policy_estimation_methods=methods, **keys)
    assert set(made.train()["off_policy_estimator"]) == {"is"}
    made.stop()
    with pytest.raises(ConfigError, match="'iss'"):
        trainer("MARWIL", input_evaluation=["iss"], **keys)


def test_a_file_of_ray_s_own_writer_is_read() -> None:
    """Ray 2.60's JsonWriter wrote two episodes of 3 and 2 steps."""
    first, second = JsonReader(Path(__file__).parent / "ray_files").read_all_files()
    assert first["obs"].tolist() == [[0.5, 110.0], [1.5, 111.0], [2.5, 112.0]] and first["obs"].dtype == np.float32
    assert np.array_equal(first["new_obs"][:-1], first["obs"][1:]) and first["dones"].tolist() == [False, False, True]
    assert second["eps_id"].tolist() == [12, 12] and second["action_prob"].tolist() == [0.5, 0.5]
    made = trainer("BC", input=str(Path(__file__).parent / "ray_files"), env=TwoNumbers, train_batch_size=5, **SMALL)
    assert made.train()["timesteps_total"] == 5
    made.stop()


class TwoNumbers(gym.Env):
    """The environment of that file."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (2,)), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> Any:
        return np.zeros(2, np.float32), 1.0, True, False, {}


def test_a_builder_of_configs_has_offline_data(demo: Path) -> None:
    from lightning_rl.rllib import MARWILConfig  # type: ignore[attr-defined]

    config = MARWILConfig().environment("CartPole-v1").offline_data(input_=str(demo), shuffle_buffer_size=0)
    made: Any = config.training(train_batch_size=100, beta=0.5, model=SMALL["model"]).build()
    assert made.run_config["data"]["input"] == str(demo) and made.policy.beta == 0.5
    made.stop()


@pytest.mark.parametrize("name", ["MARWIL", "BC", "DQN"])
def test_rllib_s_whole_default_config_trains_from_files(name: str, demo: Path) -> None:
    own = {"input": str(demo), "input_evaluation": [], "num_workers": 0, "min_iter_time_s": 0, **SMALL}
    config = {**rllib_defaults(name.lower()), **own}
    with pytest.warns(UserWarning, match="no counterpart"):
        made = trainer(name, **{key: value for key, value in config.items() if key != "env"})
    result = made.train()
    made.stop()
    assert result["gradient_steps"] >= 1 and result["episodes_total"] == 0


class Runs:
    """A pickle that would run a command."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("ran"),)


def test_a_packed_column_that_names_code_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    packed = base64.b64encode(lz4.frame.compress(pickle.dumps(Runs()))).decode()
    line = {"type": "SampleBatch", "obs": packed, "actions": [0], "rewards": [1.0], "dones": [True]}
    (tmp_path / "a.json").write_text(json.dumps(line) + "\n")
    with pytest.raises(ConfigError, match="which is not loaded"):
        JsonReader(tmp_path).next()
    with pytest.raises(ConfigError, match="which is not loaded"):
        DatasetReader(Dataset([line])).next()
    assert not Path("ran").exists()
