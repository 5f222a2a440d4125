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
from tests.cli.conftest import Command, not_refused
from tests.edited_runs import config_of, states, status_of
from tests.run_processes import Run

SHORT = ("total_env_steps=300", "workers.fragment_length=16", "policy.passes=1", "evaluation=none", "logger=none")
WITH_CURVES = (*SHORT[:-1], "logger=csv")

# Returns of CartPole until its 25th step fails; the other job's never does.
FRAGILE = ("env.id=tests.rollouts.crashing:CrashingCartPole", "env.kwargs.at=25,1000000", "workers.max_env_restarts=0")


def test_a_failing_job_leaves_its_traceback_and_does_not_stop_the_others(command: Command, tmp_path: Path):
    outcome = command("train", "-m", *FRAGILE, "run_dir=sweep", *WITH_CURVES)
    sweep = tmp_path / "sweep"
    failed, done = sweep / "0_ppo_CrashingCartPole", sweep / "1_ppo_CrashingCartPole"
    assert outcome.code == 1 and states(sweep) == ["failed", "ok"]
    assert "ArithmeticError: wheels came off" in (failed / "train.log").read_text()
    assert not (done / "train.log").exists()
    assert config_of(done)["run_dir"] == str(done)

    table = outcome.out[outcome.out.index("env.kwargs.at  runs") :].splitlines()
    assert table[0].split()[:4] == ["env.kwargs.at", "runs", "failed", "return"]
    assert [row.split()[:3] for row in table[1:3]] == [["25", "0", "1"], ["1000000", "1", "0"]]
    assert [row.split()[3] == "-" for row in table[1:3]] == [True, False]
    assert table[3].startswith("job 0 failed (env.kwargs.at=25): EnvError: ") and "wheels came off" in table[3]
    assert table[4] == f"{sweep}  (sweep.csv, sweep.md, report.html)"
    page = (sweep / "report.html").read_text()
    assert "wheels came off" in page and "0_ppo_CrashingCartPole" in page


def test_a_sweep_leaves_means_and_intervals_over_seeds(command: Command, tmp_path: Path):
    """Returns 10, 20 and 30: mean 20, deviation 10, half of the 95 % interval 4.303 · 10 / √3 = 24.8."""
    directory = tmp_path / "sweep"
    returns = {("1e-3", 1): 10.0, ("1e-3", 2): 20.0, ("1e-3", 3): 30.0, ("1e-4", 1): 7.0, ("1e-4", 2): None}
    for number, ((lr, seed), value) in enumerate(returns.items()):
        folder = directory / f"{number}_ppo_cartpole"
        (folder / ".hydra").mkdir(parents=True)
        overrides = ["policy=ppo", f"++policy.lr={lr}", f"seed={seed}", "total_env_steps=5"]
        (folder / ".hydra" / "overrides.yaml").write_text(yaml.safe_dump(overrides))
        status = {"state": "failed", "error": "EnvError: a | b"}
        if value is not None:
            status = {"state": "ok", "env_steps": 5, "seconds": 2}
            status |= dict.fromkeys(("return", "evaluation", "best_return"), value)
        (folder / "status.json").write_text(json.dumps(status))
    shown = write_tables(directory, sweep_jobs_of(directory))
    assert [row["policy.lr"] for row in shown] == ["1e-3", "1e-4"]
    assert [(row["runs"], row["failed"], row["return"]) for row in shown] == [(3, 0, "20.0 ± 24.8"), (1, 1, 7.0)]
    rows = csv_rows(directory / "sweep.csv")
    assert set(rows[0]) & {"policy", "seed", "total_env_steps"} == set()
    assert float(rows[0]["return"]) == 20.0 and float(rows[0]["return_ci95"]) == pytest.approx(24.84, abs=0.01)
    assert (rows[1]["last_eval"], rows[1]["last_eval_ci95"], rows[1]["best"]) == ("7.0", "", "7.0")
    written = (directory / "sweep.md").read_text()
    header = "| policy.lr | runs | failed | return | last_eval | best | env_steps | seconds |\n| --- |"
    assert written.startswith(header) and "| 1e-3 | 3 | 0 | 20.0 ± 24.8 |" in written
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
    outcome = command("train", "-m", *FRAGILE, "env.kwargs.at=2", "seed=1,2", "run_dir=sweep", *WITH_CURVES)
    assert outcome.code == 1 and outcome.out.endswith("(sweep.csv, sweep.md)\n")
    assert "no report:" in outcome.err and not (tmp_path / "sweep" / "report.html").exists()


def test_all_jobs_are_checked_before_the_first_one_starts(command: Command, tmp_path: Path):
    outcome = command("train", "-m", "policy=ppo,a2c", "seed=1,x", "run_dir=sweep", *SHORT[:2])
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "error: seed='x' is text; expected integer between 0 and 4294967295\n"
    assert command("train", "-m", "policy=ppo,pppo").err.startswith("error: policy=pppo: no such policy.")
    assert list(tmp_path.iterdir()) == []


def test_jobs_of_different_policies_take_the_values_tuned_for_each(command: Command, tmp_path: Path):
    assert command("train", "-m", "policy=ppo,a2c", "run_dir=sweep", *SHORT[:2], *SHORT[3:]).code == 0
    lambdas = {job.name: config_of(job)["policy"]["gae_lambda"] for job in (tmp_path / "sweep").glob("?_*")}
    assert lambdas == {"0_ppo_cartpole": 0.9, "1_a2c_cartpole": 1.0}


def test_with_jobs_each_job_trains_in_a_process(command: Command, tmp_path: Path):
    outcome = command("train", "-m", "policy=ppo", "seed=3", "run_dir=sweep", *SHORT, "--jobs", "2")
    assert outcome.code == 0, outcome.err
    job = tmp_path / "sweep" / "0_ppo_cartpole"
    assert status_of(job)["state"] == "ok" and status_of(job)["pid"] != os.getpid()
    assert "/300 env steps" in (job / "output.log").read_text()
    assert "job 0 ok: " in outcome.out


@pytest.mark.process
def test_jobs_at_once_train_in_processes_of_which_none_harms_another(command: Command, tmp_path: Path):
    """One is killed and one raises, both once, and one ends well; the same command then trains what is not done."""
    fails = [f"{{how: {how}, at: 25, once: {tmp_path / how}}}" for how in ("kill", "raise")]
    jobs = (FRAGILE[0], f"env.kwargs={','.join(fails)},{{at: null}}", FRAGILE[2], *SHORT)
    sweep, arguments = tmp_path / "sweep", ("train", "-m", *jobs, "run_dir=sweep", "--jobs", "2")
    outcome = command(*arguments)
    assert outcome.code == 1 and states(sweep) == ["failed", "failed", "ok"]
    folders = [sweep / f"{number}_ppo_CrashingCartPole" for number in range(3)]
    first, second, third = map(status_of, folders)
    killed = re.search(r"the process of the job \(pid (\d+)\) was killed by SIGKILL", first["error"])
    assert killed is not None and len({int(killed[1]), second["pid"], third["pid"], os.getpid()}) == 4
    assert "wheels came off" in second["error"] and "wheels came off" in (folders[1] / "output.log").read_text()
    assert "/300 env steps" in (folders[2] / "output.log").read_text()
    lines = [line for line in outcome.out.splitlines() if line.startswith("job ")]
    assert "job 2 (env.kwargs={at:null}) ok: " in " ".join(lines)
    assert sum(line.endswith(" of 3]") for line in lines) == 3
    assert (sweep / "sweep.csv").is_file()

    again = command(*arguments)
    assert again.code == 0 and states(sweep) == ["ok"] * 3
    assert status_of(folders[2]) == third and "job 2 (env.kwargs={at:null}) is done already" in again.out


SLOW = """
import time
from pathlib import Path
from tests.rollouts.crashing import CrashingCartPole


class Slow(CrashingCartPole):
    def step(self, action):
        time.sleep(0 if Path("fast").exists() else 0.02)
        return super().step(action)
"""


@pytest.mark.slow
def test_ctrl_c_ends_all_jobs_with_checkpoints_and_the_same_command_goes_on(command: Command, tmp_path: Path):
    (tmp_path / "slow.py").write_text(SLOW)
    arguments = ("train", "-m", "env.id=slow:Slow", "seed=1,2,3", "run_dir=sweep", *SHORT[1:], "total_env_steps=2000")
    arguments = (*arguments, "--jobs", "2")
    with Run(*arguments, cwd=tmp_path) as sweep:
        sweep.until(lambda: states(tmp_path / "sweep") == ["running", "running"])
        os.kill(sweep.process.pid, signal.SIGINT)
        assert sweep.wait() == 130
        sweep.until_gone(10)
        (words,) = [line for line in sweep.text.splitlines() if line.startswith("interrupted")]
    assert "; the same command with run_dir=" in words
    assert states(tmp_path / "sweep") == ["interrupted", "interrupted"]
    stopped = status_of(tmp_path / "sweep" / "0_ppo_Slow")["env_steps"]
    assert stopped < 2000
    (tmp_path / "fast").touch()
    outcome = command(*arguments)
    assert outcome.code == 0, outcome.out
    assert states(tmp_path / "sweep") == ["ok"] * 3
    log = (tmp_path / "sweep" / "0_ppo_Slow" / "output.log").read_text()
    first = log.split("stopping after this iteration")[1].splitlines()[1:]
    assert all(int(line.split("/")[0].replace(",", "")) >= stopped for line in first if "/2,000" in line)


def test_a_sweep_is_refused_in_the_directory_of_another(command: Command, tmp_path: Path):
    base = ("train", "-m", "policy=ppo", "run_dir=sweep", *SHORT)
    assert command(*base, "seed=1,2").code == 0
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    assert "seed=2 (now 3)" in command(*base, "seed=1,3").refusal
    assert "1_ppo_cartpole is not a job" in command(*base, "seed=1").refusal
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before
    same = command(*base, "seed=1,2")
    assert same.code == 0 and "env steps  return" not in same.out


def test_jobs_need_a_sweep_and_a_number(command: Command):
    cases = {
        "train policy=ppo --jobs 2": "--jobs is for sweeps: add -m",
        "train -m seed=1,2 --jobs 0": "--jobs 0; expected at least 1",
        "train -m hydra/launcher=basic seed=1,2 --jobs 2": "--jobs cannot be combined",
        "train -m hydra/sweeper=basic seed=1,2 --jobs 2": "--jobs cannot be combined",
    }
    assert not_refused(command, cases) == {}


@pytest.mark.slow
def test_submitit_trains_the_jobs_of_a_sweep_in_processes_of_its_own(command: Command, tmp_path: Path):
    """`submitit_slurm` differs in how the processes are started: with sbatch."""
    pytest.importorskip("submitit")
    outcome = command("train", "-m", "hydra/launcher=submitit_local", "seed=1,2", "run_dir=sweep", *SHORT)
    assert outcome.code == 0, outcome.err
    assert states(tmp_path / "sweep") == ["ok", "ok"]
    assert len({os.getpid(), *(status_of(job)["pid"] for job in tmp_path.glob("sweep/*_ppo_cartpole"))}) == 3
    assert len([*tmp_path.glob("sweep/.submitit/*/*_log.out")]) == 2 and "   2  " in outcome.out
