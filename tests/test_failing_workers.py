"""Whole runs whose workers fail: equal results, or an end with the worker's own error."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from lightning_rl.callbacks import RLCallback
from lightning_rl.runs import run
from tests.callbacks.log_files import csv_rows
from tests.rollouts.ray.programs import descendants
from tests.run_comparison import assert_equal, checked_config, learned_state

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

SMALL = """policy=ppo env=cartpole experiment=none policy.passes=2 policy.observation_filter=mean_std
    workers.logical_workers=3 workers.envs_per_worker=2 workers.fragment_length=64
    workers.batch_mode=complete_episodes evaluation.episodes=1 evaluation.every_env_steps=1200"""
CRASHING = """env=cartpole env.id=tests.rollouts.crashing:CrashingCartPole env.check=false
    workers.vectorization=sync workers.num_workers=2 evaluation.every_env_steps=0 trainer.enable_progress_bar=false"""
FROM_STEP_300 = f"policy=ppo total_env_steps=1000000 workers.fragment_length=64 {CRASHING} +env.kwargs.at=300"


def config(run_dir: Path, *overrides: str) -> dict[str, Any]:
    return checked_config(*SMALL.split(), f"run_dir={run_dir}", *overrides)


class Kill(RLCallback):
    """Kills one of this process's rollout processes while the iterations named in `at` learn."""

    def __init__(self, at: Sequence[int]) -> None:
        self.at, self.killed = at, 0

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        if pl_module.iterations + 1 in self.at:
            # The workers' own processes: those of an earlier run in this session may still be ending.
            pids = sorted(set(trainer.datamodule.workers.foreach_worker(lambda worker: os.getpid())))
            os.kill(pids[self.killed % len(pids)], signal.SIGKILL)
            self.killed += 1


def name_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def last_row(run_dir: Path) -> dict[str, float]:
    return {name: float(value) for name, value in csv_rows(run_dir / "metrics.csv")[-1].items() if value}


def test_a_run_whose_workers_are_killed_is_the_run_without(tmp_path: Path) -> None:
    """Three workers in two processes, one of which is killed in iterations 2, 4 and 5 of 7."""
    for name, kills in (("calm", []), ("deadly", [2, 4, 5])):
        taken = config(tmp_path / name, "total_env_steps=3000", "workers.num_workers=2")
        taken["callbacks"] = [{"callback": f"{__name__}:Kill", "at": kills}]
        run.train(taken)
    assert last_row(tmp_path / "deadly")["sys/worker_restarts"] == 3
    assert last_row(tmp_path / "calm")["sys/worker_restarts"] == 0
    assert_equal(learned_state(tmp_path / "calm"), learned_state(tmp_path / "deadly"))


@pytest.mark.slow
def test_a_budget_that_was_spent_can_be_raised_in_the_resumed_run(tmp_path: Path) -> None:
    taken = config(tmp_path / "run", "total_env_steps=3000", "workers.num_workers=1", "workers.max_restarts=0")
    taken["callbacks"] = [{"callback": f"{__name__}:Kill", "at": [3]}]
    with pytest.raises(Exception, match="max_restarts=0"):
        run.train(taken)
    again = run.resumed_config(tmp_path / "run", {"workers.max_restarts": 2})
    again["callbacks"] = []
    assert run.train(again, ckpt_path=tmp_path / "run" / "checkpoints" / "last.ckpt")["state"] == "ok"


# -- in processes of their own ----------------------------------------------------------------------------------------
class Started:
    """`train.py` in its own process group, so that all its processes can be found."""

    def __init__(self, run_dir: Path, overrides: str, *more: str) -> None:
        self.run_dir, self.group = run_dir, time.monotonic_ns()
        environ = {**os.environ, "LIGHTNING_RL_TEST_GROUP": str(self.group), "PYTHONPATH": os.getcwd()}
        own = f"run_dir={run_dir}", "report_every_env_steps=1"
        command = [sys.executable, "train.py", *overrides.split(), *more, *own]
        self.errors = run_dir.with_suffix(".txt")
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                command, env=environ, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
            )

    @property
    def trains(self) -> bool:
        return (self.run_dir / "metrics.csv").exists()

    def wait_until_it_trains(self, seconds: float = 240.0) -> None:
        deadline = time.monotonic() + seconds
        while not self.trains and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert self.trains, self.output()

    def wait(self, seconds: float) -> int:
        """The exit code; a process that hangs is ended, and fails the test."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise

    def output(self) -> str:
        return self.errors.read_text()

    def orphans(self, seconds: float = 30.0) -> list[str]:
        """Processes that are still there after `seconds`."""
        deadline = time.monotonic() + seconds
        while descendants(self.group) and time.monotonic() < deadline:
            time.sleep(0.2)
        return descendants(self.group)


def last_checkpoint(run_dir: Path) -> dict[str, Any]:
    return torch.load(run_dir / "checkpoints" / "last.ckpt", weights_only=True)


def test_a_run_that_cannot_go_on_ends_with_the_worker_s_own_words(tmp_path: Path) -> None:
    """Environments work for 300 steps, then never again for longer; exit code 2, and no process is left."""
    limits = "workers.max_env_restarts=0 workers.max_restarts=2"
    started = Started(tmp_path / "run", f"{FROM_STEP_300} {limits}")
    assert started.wait(240) == 2, started.output()
    (line,) = [line for line in started.output().splitlines() if line.startswith("error: ")]
    assert "wheels came off" in line and "max_restarts=2" in line and "seed" in line and "worker" in line
    log = (tmp_path / "run" / "train.log").read_text()
    assert "crashing.py" in log and "ArithmeticError" in log
    assert started.orphans() == []
    assert last_checkpoint(tmp_path / "run")["counters"]["env_steps"] > 0


@pytest.mark.slow
def test_a_run_ends_on_sigterm_although_all_its_workers_hang(tmp_path: Path) -> None:
    """Every environment sleeps from its 300th step on; nothing but the signal would end the run for minutes."""
    started = Started(tmp_path / "run", f"{FROM_STEP_300} +env.kwargs.how=hang")
    started.wait_until_it_trains()
    time.sleep(10)
    begun = time.monotonic()
    started.process.send_signal(signal.SIGTERM)
    assert started.wait(60) == 130, started.output()
    assert time.monotonic() - begun < 60  # 20 on a machine with nothing else to do
    assert started.orphans() == []
    assert last_checkpoint(tmp_path / "run")["counters"]["env_steps"] > 0


# -- drills -----------------------------------------------------------------------------------------------------------
EVERYTHING = ["raise", "nan", "kill", "exit", "segfault", "hang", "hang in C", "oom"]
DRILLS = {
    "ppo": "policy=ppo total_env_steps=40000 +env.kwargs.chance=0.0003",
    "whole episodes": """policy=ppo total_env_steps=40000 workers.batch_mode=complete_episodes
        +env.kwargs.chance=0.0003""",
    "apex": """policy=apex total_env_steps=12000 data.learning_starts=2048 data.capacity=20000 data.batch_size=64
        data.num_shards=2 +env.kwargs.chance=0.001""",
    "impala": "policy=impala total_env_steps=40000 +env.kwargs.chance=0.0003",
    "a3c": "policy=a3c total_env_steps=20000 +env.kwargs.chance=0.0005",
}


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("drill", DRILLS)
def test_failures_of_every_kind_at_random_moments_end_no_run(drill: str, tmp_path: Path) -> None:
    """About a dozen failures in the environments, and a process killed from outside now and then."""
    limits = "experiment=none workers.step_timeout_s=3 workers.max_failures=30 workers.max_restarts=1000"
    kinds = f"+env.kwargs.how=[{','.join(map(repr, EVERYTHING))}]"
    started = Started(tmp_path / "run", f"{CRASHING} {DRILLS[drill]} {limits}", kinds)
    random_moments = random.Random(drill)
    started.wait_until_it_trains()
    kills, next_kill = 0, time.monotonic() + 5
    deadline = time.monotonic() + 1200
    while started.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
        if time.monotonic() >= next_kill:
            next_kill = time.monotonic() + random_moments.uniform(5.0, 30.0)
            kills += kill_one(started.process.pid, random_moments)
    assert started.wait(1) == 0, started.output()
    assert started.orphans() == []
    row = last_row(tmp_path / "run")
    print(
        f"{drill}: {kills} killed, {row['sys/worker_restarts']:.0f} processes and {row['sys/env_restarts']:.0f} "
        "environments restarted"
    )
    assert row["sys/worker_restarts"] + row["sys/env_restarts"] >= 5


def kill_one(driver: int, random_moments: random.Random) -> int:
    """Kill a rollout process of that driver; how many there were to kill."""
    with contextlib.suppress(psutil.Error):  # the driver, or the victim, has just ended
        children = psutil.Process(driver).children(recursive=True)
        if victims := [each for each in children if "ray::RolloutProcess" in name_of(each)]:
            random_moments.choice(victims).kill()
            return 1
    return 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(10))
def test_a_signal_at_any_moment_ends_a_run_with_workers_soon(seed: int, tmp_path: Path) -> None:
    """At any second from the first on; a run that was training by then leaves a checkpoint that loads."""
    moments = random.Random(seed)
    started = Started(tmp_path / "run", "policy=ppo env=cartpole workers.num_workers=2 total_env_steps=1000000000")
    if seed % 2:
        started.wait_until_it_trains()
        time.sleep(moments.uniform(0.0, 5.0))
    else:
        time.sleep(moments.uniform(0.5, 20.0))
    trained, begun = started.trains, time.monotonic()
    if seed % 3 == 0:  # as at a terminal, where Ctrl-C reaches all processes of the run
        os.killpg(started.process.pid, signal.SIGINT)
    else:
        started.process.send_signal(signal.SIGTERM)
    code = started.wait(120)
    seconds = time.monotonic() - begun
    print(f"ended after {seconds:.1f} s, trained: {trained}, exit code {code}")
    assert seconds < 60  # 20 on a machine with nothing else to do
    assert code in ((130,) if trained else (130, -signal.SIGTERM, 143)), started.output()
    assert started.orphans() == []
    if trained:
        assert last_checkpoint(tmp_path / "run")["counters"]["env_steps"] > 0
