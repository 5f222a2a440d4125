"""`train -m`: a directory per job, failing jobs, and the table at the end of the sweep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from lightning_rl.runs.sweep_tables import sweep_jobs_of, write_tables
from tests.callbacks.log_files import csv_rows
from tests.cli.conftest import Command

SHORT = ("total_env_steps=300", "workers.fragment_length=16", "policy.minibatches=1", "evaluation=none", "logger=none")
WITH_CURVES = (*SHORT[:-1], "logger=csv")

FRAGILE = '''
import gymnasium as gym
import numpy as np


class Fragile(gym.Env):
    """Raises after `lasts` steps."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, lasts):
        self.lasts, self.steps = lasts, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps > self.lasts:
            raise RuntimeError("the gripper is stuck")
        return np.zeros(2, np.float32), 1.0, self.steps % 5 == 0, False, {}
'''


def test_a_failing_job_leaves_its_traceback_and_does_not_stop_the_others(command: Command, tmp_path: Path):
    (tmp_path / "fragile.py").write_text(FRAGILE)
    once = (*WITH_CURVES, "workers.max_env_restarts=0")  # a new environment would last as long again
    outcome = command("train", "-m", "env.id=fragile:Fragile", "env.kwargs.lasts=25,1000", "run_dir=sweep", *once)
    assert outcome.code == 1
    failed, done = tmp_path / "sweep" / "0_ppo_custom", tmp_path / "sweep" / "1_ppo_custom"
    states = [json.loads((job / "status.json").read_text())["state"] for job in (failed, done)]
    assert states == ["failed", "ok"]
    assert "RuntimeError: the gripper is stuck" in (failed / "train.log").read_text()
    assert not (done / "train.log").exists()
    assert yaml.safe_load((done / "config.yaml").read_text())["run_dir"] == str(done)

    table = outcome.out[outcome.out.index("env.kwargs.lasts  runs") :].splitlines()
    assert table[0].split()[:4] == ["env.kwargs.lasts", "runs", "failed", "return"]
    assert [row.split()[:4] for row in table[1:3]] == [["25", "0", "1", "-"], ["1000", "1", "0", "5.0"]]
    assert table[3].startswith("job 0 failed (env.kwargs.lasts=25): EnvError: ") and "the gripper is stuck" in table[3]
    assert table[4] == f"{tmp_path / 'sweep'}  (sweep.csv, sweep.md, report.html)"
    page = (tmp_path / "sweep" / "report.html").read_text()
    assert "the gripper is stuck" in page and "0_ppo_custom" in page


def test_a_sweep_leaves_means_and_intervals_over_seeds(command: Command, tmp_path: Path):
    """Returns 10, 20 and 30: mean 20, deviation 10, half of the 95 % interval 4.303 · 10 / √3 = 24.8."""
    directory = tmp_path / "sweep"
    returns = {("1e-3", 1): 10.0, ("1e-3", 2): 20.0, ("1e-3", 3): 30.0, ("1e-4", 1): 7.0, ("1e-4", 2): None}
    for number, ((lr, seed), value) in enumerate(returns.items()):
        folder = directory / f"{number}_ppo_cartpole"
        (folder / ".hydra").mkdir(parents=True)
        overrides = ["policy=ppo", f"++policy.lr={lr}", f"seed={seed}", "total_env_steps=5"]
        (folder / ".hydra" / "overrides.yaml").write_text(yaml.safe_dump(overrides))
        status = {
            "state": "ok",
            "env_steps": 5,
            "return": value,
            "evaluation": value,
            "best_return": value,
            "seconds": 2,
        }
        if value is None:
            status = {"state": "failed", "error": "EnvError: a | b"}
        (folder / "status.json").write_text(json.dumps(status))
    shown = write_tables(directory, sweep_jobs_of(directory))
    assert [row["policy.lr"] for row in shown] == ["1e-3", "1e-4"]
    assert [(row["runs"], row["failed"], row["return"]) for row in shown] == [(3, 0, "20.0 ± 24.8"), (1, 1, 7.0)]
    rows = csv_rows(directory / "sweep.csv")
    assert set(rows[0]) & {"policy", "seed", "total_env_steps"} == set()
    assert float(rows[0]["return"]) == 20.0 and float(rows[0]["return_ci95"]) == pytest.approx(24.84, abs=0.01)
    assert (rows[1]["last_eval"], rows[1]["last_eval_ci95"], rows[1]["best"]) == ("7.0", "", "7.0")
    written = (directory / "sweep.md").read_text()
    assert written.startswith(
        "| policy.lr | runs | failed | return | last_eval | best | env_steps | seconds |\n| --- |"
    )
    assert "| 1e-3 | 3 | 0 | 20.0 ± 24.8 |" in written
    assert "- job 4 failed (policy.lr=1e-4 seed=2): EnvError: a | b" in written


def test_a_sweep_over_seeds_alone_is_one_row(command: Command, tmp_path: Path):
    outcome = command("train", "-m", "policy=ppo", "env=cartpole", "seed=1,2", "run_dir=sweep", *WITH_CURVES)
    assert outcome.code == 0
    (row,) = csv_rows(tmp_path / "sweep" / "sweep.csv")
    assert row["runs"] == "2" and float(row["return_ci95"]) > 0 and row["last_eval"] == ""
    header, _, line, *_ = (tmp_path / "sweep" / "sweep.md").read_text().splitlines()
    assert header == "| runs | return | best | env_steps | seconds |"
    assert " ± " in line and " ± " in outcome.out
    assert outcome.out.endswith("(sweep.csv, sweep.md, report.html)\n")
    assert "over 2 seeds" in (tmp_path / "sweep" / "report.html").read_text()


def test_a_sweep_of_which_no_job_has_a_return_ends_without_a_report(command: Command, tmp_path: Path):
    (tmp_path / "fragile.py").write_text(FRAGILE)
    once = (*WITH_CURVES, "workers.max_env_restarts=0")
    outcome = command("train", "-m", "env.id=fragile:Fragile", "env.kwargs.lasts=2", "seed=1,2", "run_dir=sweep", *once)
    assert outcome.code == 1 and outcome.out.endswith("(sweep.csv, sweep.md)\n")
    assert "no report: no run has a return yet" in outcome.err and not (tmp_path / "sweep" / "report.html").exists()


def test_all_jobs_are_checked_before_the_first_one_starts(command: Command, tmp_path: Path):
    outcome = command("train", "-m", "policy=ppo,a2c", "seed=1,x", "run_dir=sweep", *SHORT[:2])
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "error: seed='x' is text; expected integer between 0 and 4294967295\n"
    assert command("train", "-m", "policy=ppo,pppo").err.startswith("error: policy=pppo: no such policy.")
    assert list(tmp_path.iterdir()) == []


def test_jobs_of_different_policies_take_the_values_tuned_for_each(command: Command, tmp_path: Path):
    outcome = command("train", "-m", "policy=ppo,a2c", "run_dir=sweep", *SHORT[:2], *SHORT[3:])
    assert outcome.code == 0
    configs = {job.name: yaml.safe_load((job / "config.yaml").read_text()) for job in (tmp_path / "sweep").glob("?_*")}
    assert set(configs) == {"0_ppo_cartpole", "1_a2c_cartpole"}
    assert [configs[name]["policy"]["gae_lambda"] for name in sorted(configs)] == [0.9, 0.95]
