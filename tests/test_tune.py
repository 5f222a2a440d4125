"""`lightning_rl.runs.tune`: runs as trials of Ray Tune, on real Ray Tune."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lightning_rl.config.compose import parse_overrides
from lightning_rl.errors import ConfigError
from lightning_rl.run_directory.checkpoint_files import counters_in
from lightning_rl.runs.tune import TrialRun, trainable, trial_overrides
from tests.callbacks.log_files import csv_rows
from tests.refusals import not_refused

ROOT = Path(__file__).parents[1]
SHORT = ["policy=ppo", "env=cartpole", "experiment=none", "total_env_steps=1200", "evaluation.every_env_steps=400"]
SHORT += ["evaluation.episodes=2", "workers.fragment_length=16", "policy.minibatches=2", "logger=csv", "policy.lr=1e-3"]

FRAGILE = """
from lightning.pytorch import Callback


class Fragile(Callback):
    def on_train_batch_end(self, trainer, policy, *of_the_batch):
        if policy.env_steps > 800:
            raise RuntimeError("the gripper is stuck")
"""


def weights(file: Path) -> dict[str, torch.Tensor]:
    found = torch.load(file, weights_only=True)["state_dict"]
    return {name: value for name, value in found.items() if name.startswith("model.")}


def test_a_trial_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(tmp_path: Path):
    whole = TrialRun(SHORT, tmp_path / "whole")
    reports = [whole.next_evaluation()]
    whole.save(tmp_path / "first.ckpt")
    while not reports[-1]["done"]:
        reports.append(whole.next_evaluation())
    assert [report["env_steps"] // 400 for report in reports] == [1, 2, 3]
    assert {"eval/ep_rew_mean", "rollout/ep_rew_mean", "train/lr"} <= set(reports[0])
    assert counters_in(tmp_path / "first.ckpt")["env_steps"] == reports[0]["env_steps"]

    again = TrialRun(SHORT, tmp_path / "again")
    again.load(tmp_path / "first.ckpt")
    later = [again.next_evaluation(), again.next_evaluation()]
    for name in ("env_steps", "eval/ep_rew_mean", "rollout/ep_rew_mean", "train/loss", "done"):
        assert [report[name] for report in later] == [report[name] for report in reports[1:]], name
    ends = [weights(tmp_path / name / "checkpoints" / "last.ckpt") for name in ("whole", "again")]
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())
    for trial in (whole, again):
        trial.stop()


def test_a_trial_that_takes_another_s_checkpoint_learns_on_at_its_own_rate(tmp_path: Path):
    """Rate 0 from then on: the weights stay those of the other trial, and the steps are counted on from there."""
    other, trial = TrialRun(SHORT, tmp_path / "other"), TrialRun([*SHORT, "seed=1"], tmp_path / "trial")
    first = other.next_evaluation()
    other.save(tmp_path / "other.ckpt")
    other.stop()
    assert json.loads((tmp_path / "other" / "status.json").read_text())["state"] == "interrupted"
    trial.next_evaluation()
    trial.next_evaluation()
    trial.stop()

    trial = TrialRun([*SHORT, "seed=1", "policy.lr=0"], tmp_path / "trial")
    trial.load(tmp_path / "other.ckpt")
    report = trial.next_evaluation()
    trial.save(tmp_path / "trial.ckpt")
    trial.stop()
    assert first["env_steps"] < report["env_steps"] < 1200 and report["train/lr"] == 0.0
    ours, theirs = weights(tmp_path / "trial.ckpt"), weights(tmp_path / "other.ckpt")
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    rows = csv_rows(tmp_path / "trial" / "metrics.csv")
    assert [int(row["env_steps"]) for row in rows] == sorted({int(row["env_steps"]) for row in rows})


def test_a_trial_cannot_take_the_checkpoint_of_another_task(tmp_path: Path):
    other = TrialRun(SHORT, tmp_path / "other")
    other.next_evaluation()
    other.save(tmp_path / "other.ckpt")
    other.stop()
    with pytest.raises(ConfigError, match=r"policy\.gamma=0\.5 \(checkpoint: 0\.99\).*can change .*policy\.lr"):
        TrialRun([*SHORT, "policy.gamma=0.5"], tmp_path / "trial").load(tmp_path / "other.ckpt")


def test_an_error_of_a_run_is_that_of_its_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "fragile_callback.py").write_text(FRAGILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    trial = TrialRun([*SHORT, "callbacks=[fragile_callback:Fragile]"], tmp_path / "trial")
    trial.next_evaluation()
    with pytest.raises(RuntimeError, match="the gripper is stuck"):
        trial.next_evaluation()
    trial.stop()
    assert json.loads((tmp_path / "trial" / "status.json").read_text())["state"] == "failed"


def test_what_cannot_be_a_trial_is_refused(tmp_path: Path):
    cases = [("evaluation.every_env_steps=0", "every_env_steps"), ("evaluation.parallel=true", "evaluation.parallel")]
    cases += [("trainer=ddp", "one rank"), ("policy.lrr=1", "policy.lrr")]
    assert not_refused(lambda override: TrialRun([*SHORT, override], tmp_path), cases) == []


def test_tune_s_config_becomes_overrides_flat_or_nested():
    sampled = {"policy.lr": 1e-3, "policy": {"clip": 0.1, "freeze": ["model.*"]}, "model": "gru", "seed": None}
    found = trial_overrides(sampled)
    assert found == ["policy.lr=0.001", "policy.clip=0.1", "policy.freeze=[model.*]", "model=gru", "seed=null"]
    assert parse_overrides(found[2:3]) == {"policy.freeze": ["model.*"]}


def test_without_ray_tune_the_error_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray.tune", None)
    with pytest.raises(ConfigError, match=r"pip install 'lightning_rl\[cluster\]'"):
        trainable("ppo", env="cartpole")


@pytest.fixture(scope="module")
def tune() -> Iterator[Any]:
    """`ray.tune` with a session of two cores."""
    tune = pytest.importorskip("ray.tune", exc_type=ImportError)
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=2**27)
    try:
        yield tune
    finally:
        ray.shutdown()


def tune_of(session: Any, folder: Path, trial: Any, rates: list[float], **options: Any) -> Any:
    """The results of trials with these learning rates."""
    tuner = session.Tuner(
        trial,
        param_space={"policy.lr": session.grid_search(rates)},
        tune_config=session.TuneConfig(metric="eval/ep_rew_mean", mode="max", **options),
        run_config=session.RunConfig(storage_path=str(folder / "tune"), name="search", verbose=0),
    )
    results = tuner.fit()
    assert not results.errors
    return results


@pytest.mark.ray(own_session=True)
def test_a_grid_of_rates_gives_a_result_for_each(tune: Any, tmp_path: Path):
    trial = trainable("ppo", env="cartpole", overrides=SHORT[2:-1], run_dir=tmp_path / "runs")
    results = tune_of(tune, tmp_path, trial, [1e-3, 1e-4])
    assert sorted(result.config["policy.lr"] for result in results) == [1e-4, 1e-3]
    for result in results:
        frame = result.metrics_dataframe
        assert [steps // 400 for steps in frame["env_steps"]] == [1, 2, 3]
        assert frame["train/lr"].tolist() == pytest.approx([result.config["policy.lr"]] * 3)
        assert frame["eval/ep_rew_mean"].between(5, 500).all() and frame["rollout/ep_rew_mean"].between(5, 500).all()
        run_dir = tmp_path / "runs" / result.metrics["trial_id"]
        status = json.loads((run_dir / "status.json").read_text())
        assert (status["state"], status["evaluation"]) == ("ok", result.metrics["eval/ep_rew_mean"])
    assert results.get_best_result("eval/ep_rew_mean", "max").config["policy.lr"] in (1e-4, 1e-3)


@pytest.mark.slow
@pytest.mark.ray(own_session=True)
def test_early_stopping_ends_a_trial_that_learns_nothing_and_its_worker_processes(tune: Any, tmp_path: Path):
    """One after another: the first is judged by nobody, the second by the first. Each takes two cores."""
    given = [*SHORT[2:-1], "total_env_steps=6000", "evaluation.every_env_steps=2000", "workers.num_workers=1"]
    trial = trainable("ppo", env="cartpole", overrides=given, run_dir=tmp_path / "runs")
    asha = tune.schedulers.ASHAScheduler("env_steps", max_t=10**9, grace_period=4000, reduction_factor=2)
    results = tune_of(tune, tmp_path, trial, [3e-3, 0.0], scheduler=asha, max_concurrent_trials=1)
    good, bad = sorted(results, key=lambda result: -result.config["policy.lr"])
    assert [steps // 2000 for steps in good.metrics_dataframe["env_steps"]] == [1, 2, 3]
    assert [steps // 2000 for steps in bad.metrics_dataframe["env_steps"]] == [1, 2]
    status = json.loads((tmp_path / "runs" / bad.metrics["trial_id"] / "status.json").read_text())
    assert status["state"] == "interrupted" and status["env_steps"] < 6000


@pytest.mark.ray(own_session=True)
@pytest.mark.parametrize("reuse_actors", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_population_based_training_replaces_a_trial_that_learns_nothing(reuse_actors: bool, tune: Any, tmp_path: Path):
    """The rate of the one that learns nothing, 0, becomes 0.8 or 1.2 times that of the other."""
    given = [*SHORT[2:-1], "total_env_steps=8000", "evaluation.every_env_steps=2000"]
    trial = trainable("ppo", env="cartpole", overrides=given, run_dir=tmp_path / "runs")
    pbt = tune.schedulers.PopulationBasedTraining(
        "training_iteration",
        perturbation_interval=2,  # evaluations
        hyperparam_mutations={"policy.lr": tune.loguniform(1e-4, 1e-2)},
        quantile_fraction=0.5,
        resample_probability=0.0,
        synch=True,
    )
    results = tune_of(tune, tmp_path, trial, [3e-3, 0.0], scheduler=pbt, reuse_actors=reuse_actors)
    (line,) = (tmp_path / "tune" / "search" / "pbt_global.txt").read_text().splitlines()
    *_, source, own = json.loads(line)  # configs of the trial that was copied, and of the one that took its checkpoint
    assert source["policy.lr"] == 3e-3 and own["policy.lr"] in (pytest.approx(2.4e-3), pytest.approx(3.6e-3))
    (bad,) = [result for result in results if result.config["policy.lr"] == own["policy.lr"]]
    run_dir = tmp_path / "runs" / bad.metrics["trial_id"]
    # Tune's own table can lose rows from before the copy: a trial that goes on reads back the last one that was stored.
    after = bad.metrics_dataframe[bad.metrics_dataframe["train/lr"] > 0.0]
    assert [steps // 2000 for steps in after["env_steps"]] == [3, 4]
    assert after["train/lr"].tolist() == pytest.approx([own["policy.lr"]] * 2)
    evaluated = [row for row in csv_rows(run_dir / "metrics.csv") if row["eval/ep_rew_mean"]]
    before = [row for row in evaluated if float(row["train/lr"]) == 0.0]
    # Its rows after the step of the checkpoint that it took, which is near 4000, are gone.
    assert [int(row["env_steps"]) // 2000 for row in before] in ([1], [1, 2])
    best = max(float(row["eval/ep_rew_mean"]) for row in before)
    assert after["eval/ep_rew_mean"].iloc[0] > 5 * best  # 2000 steps of its own would not be enough
    assert json.loads((run_dir / "status.json").read_text())["state"] == "ok"
    assert yaml.safe_load((run_dir / "config.yaml").read_text())["policy"]["lr"] == own["policy.lr"]


def test_a_trial_takes_the_evaluation_that_tune_chose_though_a_later_one_was_saved_beside_it(tmp_path: Path):
    """Tune writes two saves of a trial into one directory if it asked for the first while it paused the trial."""
    pytest.importorskip("ray.tune", exc_type=ImportError)
    run_dirs = tmp_path / "source", tmp_path / "copy"
    source, copy = [trainable("ppo", env="cartpole", overrides=SHORT[2:], run_dir=each)({}) for each in run_dirs]
    chosen, *_ = [(source.train(), source.save(str(tmp_path / "shared")))[1] for _ in range(3)]
    assert chosen.metrics["training_iteration"] == 1
    copy.restore(chosen)
    assert [copy.train()["env_steps"] // 400 for _ in range(2)] == [2, 3]
    for each in (source, copy):
        each.stop()


@pytest.mark.ray(own_session=True)
def test_the_example_of_the_documentation_runs(tmp_path: Path):
    pytest.importorskip("ray.tune", exc_type=ImportError)
    (block,) = re.findall(r"```py\n(.*?)```", (ROOT / "docs" / "tuning.md").read_text(), flags=re.DOTALL)
    (tmp_path / "example.py").write_text(block)
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    (line,) = [each for each in done.stdout.splitlines() if re.fullmatch(r"[\d.e-]+ [\d.]+ \d+", each)]
    lr, value, env_steps = map(float, line.split())
    assert 1e-6 < lr < 1e-1 and value > 50 and env_steps >= 20_000
    assert (tmp_path / "ray_results" / "population" / "pbt_global.txt").read_text()
    assert len([*tmp_path.glob("runs/*/*_ray_tune/*/status.json")]) == 2
