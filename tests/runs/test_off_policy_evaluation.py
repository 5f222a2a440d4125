"""The policy in training is estimated on recorded episodes that it does not learn from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_rl import Algorithm, RandomPolicy
from lightning_rl.config import compose_config
from lightning_rl.data.offline.data_set import open_data
from lightning_rl.data.offline.steps import episodes_for, join
from lightning_rl.envs import EnvCreator
from lightning_rl.errors import ConfigError
from lightning_rl.policies.off_policy_estimation import estimate_value
from lightning_rl.reports.page import write_page
from lightning_rl.reports.run_records import read_runs
from lightning_rl.reports.summaries import Task
from lightning_rl.runs import run
from lightning_rl.runs.estimation import estimate
from lightning_rl.runs.off_policy_evaluation import OffPolicyEvaluation
from tests.data.offline.recorded import record

CARTPOLE = EnvCreator("CartPole-v1")
KEYS = ["experiment=none", "model.fcnet_hiddens=[8]", "logger=none"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    record(tmp_path, CARTPOLE, 8, RandomPolicy(*CARTPOLE.spaces()))
    return tmp_path


def offline(data: Path, *keys: str, policy: str = "marwil") -> Algorithm:
    choices = ["data=offline", f"data.input={data}", "data.rows_per_iteration=300", *KEYS, *keys]
    return Algorithm(policy, overrides=["env=none", *choices])


def test_a_fifth_of_the_episodes_is_held_out_and_gives_the_estimates(data: Path) -> None:
    algorithm = offline(data, "evaluation.estimators=[wis,is]", "evaluation.data=0.2")
    algorithm.train()
    source: Any = algorithm.datamodule.source
    everything = join(list(open_data(data).read()))
    held = np.floor((np.arange(len(everything.closing_rows)) + 1) * 0.2).max()
    assert sum(len(part.closing_rows) for part in source.held_out) == held > 3
    assert source.steps + sum(len(part) for part in source.held_out) - held == everything.columns[("valid",)].sum()
    found, policy = algorithm.evaluate(), algorithm.policy
    expected: Any = estimate_value(policy, episodes_for(policy, source.held_out, ""), estimators=["is", "wis"])
    algorithm.stop()
    assert set(found) == {
        *("eval/effective_episodes", "eval/mean_ratio"),
        *(f"eval/{name}{end}" for name in ("behavior", "is", "wis") for end in ("", "_low", "_high")),
    }
    assert found["eval/wis"] == pytest.approx(expected["wis"].value, rel=1e-5)
    assert found["eval/is_high"] == pytest.approx(expected["is"].high, rel=1e-5)


def test_status_and_report_have_the_estimates_of_a_run_without_an_environment(data: Path, tmp_path: Path) -> None:
    overrides = ["policy=marwil", "env=none", "data=offline", f"data.input={data}", "experiment=none", "logger=csv"]
    lengths = ["total_env_steps=300", f"run_dir={tmp_path}/run"]
    status = run.train(compose_config([*overrides, "evaluation.estimators=[wis]", *lengths]))
    assert set(status["estimates"]) == {"behavior", "wis"} and status["estimates"]["wis"] > 1
    (task,) = Task.all_of(read_runs([tmp_path / "run"]))
    assert task.env == str(data) and task.summaries[0].scores == pytest.approx([status["estimates"]["wis"]])
    text = write_page([tmp_path / "run"], [task]).read_text(encoding="utf-8")
    assert task.metric == "eval/wis" and str(data) in text


def test_without_episodes_and_estimators_there_are_no_evaluations(data: Path, tmp_path: Path) -> None:
    overrides = ["policy=marwil", "env=none", "data=offline", f"data.input={data}", f"run_dir={tmp_path}/run", *KEYS]
    assert run.train(compose_config([*overrides, "total_env_steps=300"]))["evaluations"]["done"] == 0


def test_without_estimators_all_episodes_are_learned_from(data: Path) -> None:
    algorithm = offline(data)
    algorithm.train()
    source: Any = algorithm.datamodule.source
    assert not source.held_out and source.steps == join(list(open_data(data).read())).columns[("valid",)].sum()
    algorithm.stop()


def test_a_run_that_plays_is_estimated_on_a_data_set_of_its_own(data: Path) -> None:
    keys = ["evaluation.estimators=[pdis]", f"evaluation.data={data}", "evaluation.episodes=1"]
    algorithm = Algorithm("ppo", "CartPole-v1", overrides=[*KEYS, *keys])
    found = algorithm.evaluate()
    algorithm.stop()
    assert {"eval/ep_rew_mean", "eval/pdis", "eval/behavior_low"} <= set(found)


def test_a_run_that_plays_is_estimated_on_a_log_with_columns_of_other_names(tmp_path: Path) -> None:
    rows = "".join(f"{n // 20},0,0,0,{n / 50},{n % 2},1,0.5\n" for n in range(60))
    (tmp_path / "log.csv").write_text("day,a,b,c,d,press,gain,chance\n" + rows)
    names = "obs: [a, b, c, d], action: press, reward: gain, episode: day, action_prob: chance"
    keys = ["evaluation.estimators=[wis]", "evaluation.episodes=0", "policy.gamma=1.0"]
    data_set = f"evaluation.data={{input: {tmp_path}/log.csv, columns: {{{names}}}}}"
    algorithm = Algorithm("ppo", "CartPole-v1", overrides=[*KEYS, *keys, data_set])
    found = algorithm.evaluate()
    algorithm.stop()
    assert found["eval/behavior"] == found["eval/wis"] == pytest.approx(20.0)


@pytest.mark.parametrize("data", ["{columns: {obs: a}}", "{input: log.csv, colums: {obs: a}}"])
def test_a_data_set_for_estimates_has_an_input_and_known_keys(data: str) -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.data"):
        Algorithm("ppo", "CartPole-v1", overrides=[*KEYS, "evaluation.estimators=[wis]", f"evaluation.data={data}"])


def test_a_damaged_shard_is_skipped_wherever_data_are_read(data: Path, tmp_path: Path) -> None:
    """env=none reads the spaces, data=offline and data=mixed the steps, evaluation.data and `estimate` the episodes."""
    (data / "worker000-00000-0123456789abcdef.parquet").write_bytes(b"PAR1")  # the first by name
    keys = ["data.skip_damaged=true", "evaluation.estimators=[dm]", f"evaluation.data={data}"]
    keys += ["evaluation.estimator_options={fqe_steps: 2}", "evaluation.episodes=0"]
    played = offline(data, *keys)
    played.train()
    assert "eval/dm" in played.evaluate()
    file = played.save(str(tmp_path / "saved"))
    played.stop()
    found = estimate(Path(file), str(data), estimators=["is"], skip_damaged=True)
    assert found["estimates"]["behavior"]["value"] > 1
    mixed = ["data=mixed", f"data.input={{{data}: 0.5, sampler: 0.5}}", "data.batch_size=16", "data.learning_starts=32"]
    keys[-2] = "evaluation.estimator_options={fqe_steps: 2, epsilon: 0.1}"
    online = Algorithm("dqn", "CartPole-v1", overrides=[*KEYS, *mixed, *keys])
    online.train()
    online.stop()


def test_another_file_is_read_with_the_columns_of_the_run(tmp_path: Path) -> None:
    lines = [f"{episode},{row}.5,{row % 2},1.0" for episode in range(4) for row in range(5)]
    (tmp_path / "log.csv").write_text("\n".join(["trial,x,push,pay", *lines]))
    columns = "data.columns={obs: x, actions: push, rewards: pay, episode: trial}"
    keys = [columns, "evaluation.estimators=[dm]", f"evaluation.data={tmp_path / 'log.csv'}"]
    algorithm = offline(tmp_path / "log.csv", *keys, "evaluation.estimator_options={fqe_steps: 2}")
    algorithm.train()
    assert "eval/dm" in algorithm.evaluate()
    algorithm.stop()


def test_a_policy_and_data_that_allow_no_estimator_are_refused(tmp_path: Path) -> None:
    """A policy with memory has no dm, and data without action_logp allow nothing else."""
    lines = [f"{episode},{row}.5,{row % 2},1.0" for episode in range(4) for row in range(5)]
    (tmp_path / "log.csv").write_text("\n".join(["episode,obs,actions,rewards", *lines]))
    algorithm = offline(tmp_path / "log.csv", "model.use_lstm=true", "model.lstm_cell_size=4")
    file = algorithm.save(str(tmp_path / "saved"))
    algorithm.stop()
    with pytest.raises(ConfigError, match=r"log\.csv has no action_logp.*policy without memory"):
        estimate(Path(file), str(tmp_path / "log.csv"))


def test_options_reach_the_estimators(data: Path) -> None:
    keys = ["evaluation.estimators=[dm]", "+evaluation.estimator_options={epsilon: 0.1, fqe_steps: 2}"]
    algorithm = offline(data, *keys, "data.batch_size=32", policy="dqn")
    algorithm.train()
    assert "eval/dm" in algorithm.evaluate()
    algorithm.stop()


def test_what_cannot_be_estimated_is_refused_before_training(data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="wiss"):
        OffPolicyEvaluation(["wiss"])
    algorithm = Algorithm("ppo", "CartPole-v1", overrides=[*KEYS, "evaluation.estimators=[wis]"])
    with pytest.raises(ConfigError, match=r"evaluation\.data"):
        algorithm.train()
    assert algorithm.policy.env_steps == 0
    algorithm = offline(data, "evaluation.estimators=[wis]", policy="dqn")
    with pytest.raises(ConfigError, match="epsilon"):
        algorithm.train()
    assert algorithm.policy.gradient_steps == 0
