"""Runs of several ranks from the command line: started from one config, also in a sweep, and ended together."""

from __future__ import annotations

import os
import re
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from lightning_rl.config import compose_config
from lightning_rl.config.ranks import ranks_of
from lightning_rl.errors import ConfigError
from lightning_rl.runs.ranks import local_ranks
from tests.cli.conftest import Command, not_refused
from tests.edited_runs import last_checkpoint, states, status_of
from tests.rollouts.crashing import CrashingCartPole
from tests.run_comparison import assert_equal
from tests.run_processes import Run

SHORT = ("total_env_steps=300", "workers.fragment_length=16", "evaluation.episodes=2")
REPLAY = ("data.learning_starts=64", "data.batch_size=16", "data.capacity=400")
TWO_RANKS = ("trainer=ddp", "trainer.accelerator=cpu", "trainer.enable_progress_bar=false")


class CrashingRank(CrashingCartPole):
    """Raises in its 5th step, and so does whatever takes its place, where `rank` learns."""

    def __init__(self, rank: int) -> None:
        super().__init__(at=5 if os.environ.get("LOCAL_RANK") == str(rank) else None)


CRASHING = ("env.id=tests.cli.test_ranks:CrashingRank", "env.check=false", "policy.minibatches=1", "evaluation=none")


def test_ranks_are_the_devices():
    assert local_ranks(compose_config([])) == 1
    for devices, ranks in (("3", 3), ("[0,1]", 2), ("auto", 1)):
        assert local_ranks(compose_config([f"trainer.devices={devices}"])) == ranks


def test_several_nodes_need_a_launcher_that_starts_their_ranks(monkeypatch: pytest.MonkeyPatch):
    """Under torchrun or Slurm, each process is one rank."""
    config = compose_config(["trainer.devices=2", "trainer.num_nodes=3"])
    assert ranks_of(config) == 6
    with pytest.raises(ConfigError, match=r"trainer.num_nodes=3.*launcher=ray_train"):
        local_ranks(config)
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert local_ranks(config) == local_ranks(compose_config(["trainer.devices=3"])) == 1


def test_ranks_that_cannot_train_together_are_refused_before_anything_starts(command: Command, tmp_path: Path):
    """Gradients of ranks are averaged: those of three workers would count as much as those of two."""
    cases = {
        "train workers.logical_workers=5": "workers.logical_workers=5 for 2 ranks: every rank needs as many as the oth",
        "train trainer.strategy=fsdp": "trainer.strategy=ddp",
        **{  # strategies that start processes themselves
            f"train trainer.strategy={strategy}": f"trainer.strategy={strategy} "
            for strategy in ("ddp_spawn", "ddp_fork", "ddp_notebook")
        },
    }
    assert not_refused(command, cases, *TWO_RANKS, "run_dir=out") == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("policy", "env", "overrides"),
    [
        ("ppo", "cartpole", ()),
        ("a2c", "cartpole", ()),
        ("dqn", "cartpole", ("data.learning_starts=128", "data.batch_size=32")),
        ("sac", "pendulum", ("data.learning_starts=128", "data.batch_size=32")),
    ],
)
def test_trainer_devices_2_is_enough_to_train_on_two_ranks(
    policy: str, env: str, overrides: tuple[str, ...], tmp_path: Path
):
    """Every rank gets a worker; the run ends where `total_env_steps` of both together have been taken."""
    asked = (f"policy={policy}", f"env={env}", *TWO_RANKS, "run_dir=out", *SHORT, *overrides)
    with Run("train", *asked, cwd=tmp_path) as run:
        assert run.wait(300) == 0, run.text
        run.until_gone(30)
    status = status_of(tmp_path / "out")
    assert status["state"] == "ok" and status["env_steps"] >= 300


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_sweep_of_two_ranks_trains_each_job_in_its_own_directory(command: Command, tmp_path: Path):
    outcome = command("train", "-m", "seed=1,2", *TWO_RANKS, "run_dir=sweep", *SHORT)
    assert outcome.code == 0
    assert states(tmp_path / "sweep") == ["ok", "ok"]
    assert {path.name for path in tmp_path.iterdir()} == {"sweep"}  # no rank made its own run directory
    meeting = ("MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_USE_AGENT_STORE")
    assert not [name for name in meeting if name in os.environ]  # the next job would join ranks that are gone


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_of_a_sweep_that_fails_in_one_rank_leaves_no_rank_and_stops_no_other_job(tmp_path: Path):
    with Run(
        "train", "-m", *CRASHING, "env.kwargs.rank=8,1,9", "run_dir=sweep", *SHORT, *TWO_RANKS, cwd=tmp_path
    ) as run:
        assert run.wait(500) == 1, run.text
        run.until_gone(30)
        assert states(tmp_path / "sweep") == ["ok", "failed", "ok"]
        (job,) = (tmp_path / "sweep").glob("1_*")
        error = status_of(job)["error"]
        assert re.match("EnvError: rank 1: environment 'tests.cli.test_ranks:CrashingRank' of worker 1", error)
        assert "wheels came off" in (job / "train.log").read_text()
        assert "failed: rank 1: environment" in run.text


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("rank", [0, 1])
def test_an_environment_that_fails_in_one_rank_ends_all_with_its_error(rank: int, tmp_path: Path):
    with Run("train", *CRASHING, f"env.kwargs.rank={rank}", *TWO_RANKS, *SHORT, "run_dir=out", cwd=tmp_path) as run:
        assert run.wait(200) == 2
        run.until_gone(30)
        outcome = f"error: {'rank 1: ' * rank}environment 'tests.cli.test_ranks:CrashingRank' of worker {rank}"
        assert run.text.splitlines()[-1].startswith(outcome)
        assert "raised ArithmeticError" in run.text and "wheels came off" in run.text


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ranks_that_were_started_with_different_configs_all_refuse(tmp_path: Path):
    """As torchrun would start them, but with other learning rates: no rank waits for the other."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    with ExitStack() as stack:
        runs = [
            stack.enter_context(
                Run("train", *TWO_RANKS, *SHORT, "run_dir=out", f"policy.lr={lr}", cwd=tmp_path,
                    RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", NODE_RANK="0",
                    MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            )
            for rank, lr in enumerate(("0.001", "0.002"))
        ]  # fmt: skip
        assert [run.wait(200) for run in runs] == [2, 2]
        for run in runs:
            outcome = "policy.lr is 0.001 (rank 0), 0.002 (rank 1); start all of them with the same one"
            assert outcome in run.text.splitlines()[-1]
            run.until_gone(30)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("processes", [0, pytest.param(2, marks=pytest.mark.ray)])
@pytest.mark.parametrize("rank", [0, 1])
def test_all_ranks_end_when_one_rank_is_killed(rank: int, processes: int, tmp_path: Path):
    """kill −9 in the middle of training; 15 s are what a person waits for the message. Ray's processes go, too."""
    endless = ("total_env_steps=100_000_000", "evaluation.every_env_steps=0", "run_dir=out")
    with Run("train", *TWO_RANKS, *endless, f"workers.num_workers={processes}", cwd=tmp_path) as run:
        run.until(lambda: (tmp_path / "out" / "metrics.csv").is_file(), 400)
        (other,) = run.ranks()
        victim = other.pid if rank else run.process.pid
        os.kill(victim, 9)
        assert run.wait(15) != 0
        run.until_gone(15)
        outcome = f"rank {rank} (process {victim}) {'was killed by SIGKILL' if rank else 'is gone'}"
        assert outcome in run.text
        status = status_of(tmp_path / "out")
        assert status["state"] == "failed" and outcome in status["error"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ctrl_c_ends_all_ranks_with_one_checkpoint(tmp_path: Path):
    """The signal goes to the first rank only; the others stop with it between two iterations."""
    endless = ("total_env_steps=100_000_000", "evaluation.every_env_steps=0", "run_dir=out")
    with Run("train", *TWO_RANKS, *endless, cwd=tmp_path) as run:
        run.until(lambda: (tmp_path / "out" / "metrics.csv").is_file(), 200)
        os.kill(run.process.pid, 2)
        assert run.wait(60) == 130, run.text
        run.until_gone(30)
    assert status_of(tmp_path / "out")["state"] == "interrupted"
    assert (tmp_path / "out" / "checkpoints" / "last.ckpt").is_file()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("policy", "env", "overrides"),
    [
        ("ppo", "cartpole", ("workers.fragment_length=16", "policy.minibatches=2", "policy.lr=1e-3")),
        ("dqn", "cartpole", (*REPLAY, "exploration.epsilon_timesteps=200")),
    ],
)
def test_two_resumed_ranks_equal_an_uninterrupted_run(
    policy: str, env: str, overrides: tuple[str, ...], tmp_path: Path
):
    """512 + 512 steps end bit-equal to 1024: every rank has its own workers and replay buffer back.

    Rates that follow shares of the run would differ.
    """
    asked = (f"policy={policy}", f"env={env}", *TWO_RANKS, "experiment=none", "evaluation=none", *overrides)
    asked = (*asked, "model.fcnet_hiddens=[8]", "checkpoint.every_env_steps=512")
    commands = [
        ("train", *asked, "total_env_steps=1024", "run_dir=whole"),
        ("train", *asked, "total_env_steps=512", "run_dir=halves"),
        ("resume", "halves", "total_env_steps=1024"),
    ]
    for command in commands:
        with Run(*command, cwd=tmp_path) as run:
            assert run.wait(200) == 0, run.text
    whole, halves = (last_checkpoint(tmp_path / name) for name in ("whole", "halves"))
    assert whole["counters"] == halves["counters"]
    assert_equal(whole["state_dict"], halves["state_dict"])
