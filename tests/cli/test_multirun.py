"""`train -m`: a directory per job, failing jobs, and the table at the end of the sweep."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest
import yaml

from lightning_rl.runs.sweep_tables import sweep_jobs_of, write_tables
from tests.callbacks.log_files import csv_rows
from tests.cli.conftest import Command
from tests.run_processes import Run

SHORT = ("total_env_steps=300", "workers.fragment_length=16", "policy.passes=1", "evaluation=none", "logger=none")
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
    assert "no report:" in outcome.err and not (tmp_path / "sweep" / "report.html").exists()


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
    assert [configs[name]["policy"]["gae_lambda"] for name in sorted(configs)] == [0.9, 1.0]


STEADY = """

class Steady(Fragile):
    def __init__(self, lasts):
        super().__init__(9999)
"""

DEADLY = """
import os
import signal
from fragile import Fragile


class Deadly(Fragile):
    def step(self, action):
        if self.steps >= 25:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)
"""


def test_with_jobs_each_job_trains_in_a_process(command: Command, tmp_path: Path):
    outcome = command("train", "-m", "policy=ppo", "seed=3", "run_dir=sweep", *SHORT, "--jobs", "2")
    assert outcome.code == 0, outcome.err
    status = json.loads((tmp_path / "sweep" / "0_ppo_cartpole" / "status.json").read_text())
    assert status["state"] == "ok" and status["pid"] != os.getpid()
    assert "/300 env steps" in (tmp_path / "sweep" / "0_ppo_cartpole" / "output.log").read_text()
    assert "job 0 ok: " in outcome.out


@pytest.mark.process
def test_jobs_at_once_train_in_processes_of_which_none_harms_another(command: Command, tmp_path: Path):
    """One ends well while the other is killed; the same command then trains what is not done, and nothing else."""
    (tmp_path / "fragile.py").write_text(FRAGILE + STEADY)
    (tmp_path / "deadly.py").write_text(DEADLY)
    sweep = ("train", "-m", "env.id=deadly:Deadly,fragile:Steady", "run_dir=sweep", "env.kwargs.lasts=25")
    once = (*SHORT, "workers.max_env_restarts=0", "--jobs", "2")
    outcome = command(*sweep, *once)
    assert outcome.code == 1
    folders = [tmp_path / "sweep" / f"{number}_ppo_custom" for number in range(2)]
    statuses = [json.loads((folder / "status.json").read_text()) for folder in folders]
    assert [status["state"] for status in statuses] == ["failed", "ok"]
    killed = re.search(r"the process of the job \(pid (\d+)\) was killed by SIGKILL", statuses[0]["error"])
    assert killed is not None and len({int(killed[1]), statuses[1]["pid"], os.getpid()}) == 3
    assert "320/300 env steps" in (folders[1] / "output.log").read_text()
    lines = [line for line in outcome.out.splitlines() if line.startswith("job ")]
    assert "job 1 (env.id=fragile:Steady) ok: 320 env steps, return 5.0," in " ".join(lines)
    assert sum(line.endswith(" of 2]") for line in lines) == 2
    assert (tmp_path / "sweep" / "sweep.csv").is_file()

    (tmp_path / "deadly.py").write_text("from fragile import Steady as Deadly\n")
    before = (folders[1] / "status.json").read_text()
    again = command(*sweep, *once)
    assert again.code == 0
    assert (folders[1] / "status.json").read_text() == before
    assert "job 1 (env.id=fragile:Steady) is done already" in again.out
    assert json.loads((folders[0] / "status.json").read_text())["state"] == "ok"


@pytest.mark.slow
def test_of_jobs_at_once_one_that_raises_leaves_its_traceback_to_the_next_command(command: Command, tmp_path: Path):
    """Three jobs, two at a time: one raises, one ends well, one is killed, now and again."""
    (tmp_path / "fragile.py").write_text(FRAGILE + STEADY)
    (tmp_path / "deadly.py").write_text(DEADLY)
    sweep = ("train", "-m", "env.id=fragile:Fragile,fragile:Steady,deadly:Deadly", "run_dir=sweep")
    once = (*SHORT, "workers.max_env_restarts=0", "env.kwargs.lasts=25", "--jobs", "2")
    assert command(*sweep, *once).code == 1
    folders = [tmp_path / "sweep" / f"{number}_ppo_custom" for number in range(3)]
    statuses = [json.loads((folder / "status.json").read_text()) for folder in folders]
    assert [status["state"] for status in statuses] == ["failed", "ok", "failed"]
    assert "the gripper is stuck" in statuses[0]["error"] and "was killed by SIGKILL" in statuses[2]["error"]
    assert "the gripper is stuck" in (folders[0] / "output.log").read_text()

    (tmp_path / "fragile.py").write_text(FRAGILE.replace("= lasts, 0", "= 1000, 0") + STEADY)
    assert command(*sweep, *once).code == 1  # the deadly one
    statuses = [json.loads((folder / "status.json").read_text()) for folder in folders]
    assert [status["state"] for status in statuses] == ["ok", "ok", "failed"]


SLOW = """
import time
from pathlib import Path
from fragile import Fragile


class Slow(Fragile):
    def step(self, action):
        time.sleep(0 if Path("fast").exists() else 0.02)
        return super().step(action)
"""


@pytest.mark.slow
def test_ctrl_c_ends_all_jobs_with_checkpoints_and_the_same_command_goes_on(command: Command, tmp_path: Path):
    (tmp_path / "fragile.py").write_text(FRAGILE)
    (tmp_path / "slow.py").write_text(SLOW)
    arguments = ("train", "-m", "env.id=slow:Slow", "env.kwargs.lasts=9999", "seed=1,2,3", "run_dir=sweep")
    arguments = (*arguments, *SHORT[1:], "total_env_steps=2000", "--jobs", "2")

    def states() -> list[str]:
        return [json.loads(file.read_text())["state"] for file in sorted(tmp_path.glob("sweep/*/status.json"))]

    with Run(*arguments, cwd=tmp_path) as sweep:
        sweep.until(lambda: states() == ["running", "running"])
        os.kill(sweep.process.pid, signal.SIGINT)
        assert sweep.wait() == 130
        sweep.until_gone(10)
        (words,) = [line for line in sweep.text.splitlines() if line.startswith("interrupted")]
    assert "of 3 jobs: 2 stopped with a checkpoint, 1 not begun; the same command with run_dir=" in words
    assert states() == ["interrupted", "interrupted"]
    stopped = json.loads((tmp_path / "sweep" / "0_ppo_custom" / "status.json").read_text())["env_steps"]
    assert stopped < 2000
    (tmp_path / "fast").touch()
    outcome = command(*arguments)
    assert outcome.code == 0, outcome.out
    assert states() == ["ok"] * 3
    log = (tmp_path / "sweep" / "0_ppo_custom" / "output.log").read_text()
    first = log.split("stopping after this iteration")[1].splitlines()[1:]
    assert all(int(line.split("/")[0].replace(",", "")) >= stopped for line in first if "/2,000" in line)


def test_a_sweep_is_refused_in_the_directory_of_another(command: Command, tmp_path: Path):
    base = ("train", "-m", "policy=ppo", "run_dir=sweep", *SHORT)
    assert command(*base, "seed=1,2").code == 0
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    other = command(*base, "seed=1,3")
    assert other.code == 2 and "seed=2 (now 3)" in other.err
    fewer = command(*base, "seed=1")
    assert fewer.code == 2 and "1_ppo_cartpole is no job" in fewer.err
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before
    same = command(*base, "seed=1,2")
    assert same.code == 0 and "env steps  return" not in same.out


def test_jobs_need_a_sweep_and_a_number(command: Command):
    assert command("train", "policy=ppo", "--jobs", "2").err == "error: --jobs is for sweeps: add -m\n"
    assert command("train", "-m", "seed=1,2", "--jobs", "0").err == "error: --jobs 0; expected at least 1\n"
    launched = command("train", "-m", "hydra/launcher=basic", "seed=1,2", "--jobs", "2")
    assert launched.code == 2 and "one of" in launched.err
    adaptive = command("train", "-m", "hydra/sweeper=basic", "seed=1,2", "--jobs", "2")
    assert adaptive.code == 2 and "`lightning-rl tune` searches" in adaptive.err


def test_slurm_s_launcher_says_what_it_lacks(command: Command, monkeypatch: pytest.MonkeyPatch):
    slurm = ("train", "-m", "hydra/launcher=submitit_slurm", "seed=1,2", "run_dir=sweep")
    monkeypatch.setattr("lightning_rl.config.sweeps.find_spec", lambda name: None)
    assert command(*slurm).err == (
        "error: hydra/launcher=submitit_slurm is not installed: pip install 'lightning_rl[slurm]'\n"
    )
    monkeypatch.setattr("lightning_rl.config.sweeps.find_spec", lambda name: name)
    monkeypatch.setenv("PATH", "")
    without = command(*slurm)
    assert without.code == 2 and "srun" in without.err


@pytest.mark.slow
def test_submitit_trains_the_jobs_of_a_sweep_in_processes_of_its_own(command: Command, tmp_path: Path):
    """`submitit_slurm` differs in how the processes are started: with sbatch."""
    pytest.importorskip("submitit")
    outcome = command("train", "-m", "hydra/launcher=submitit_local", "seed=1,2", "run_dir=sweep", *SHORT)
    assert outcome.code == 0, outcome.err
    statuses = [json.loads(file.read_text()) for file in sorted(tmp_path.glob("sweep/*_ppo_cartpole/status.json"))]
    assert [status["state"] for status in statuses] == ["ok", "ok"]
    assert len({os.getpid(), *(status["pid"] for status in statuses)}) == 3
    assert len([*tmp_path.glob("sweep/.submitit/*/*_log.out")]) == 2 and "   2  " in outcome.out
