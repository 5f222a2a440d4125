"""Several processes per run: started from the run's own config, also in a sweep, and gone afterwards."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lightning_rl.config import compose_config
from lightning_rl.ranks import local_ranks
from tests.cli.conftest import Command

SHORT = ("total_env_steps=300", "workers.fragment_length=16", "evaluation.episodes=2")


@pytest.mark.parametrize(
    ("overrides", "ranks"),
    [([], 1), (["trainer.devices=3"], 3), (["trainer.devices=[0,1]"], 2), (["trainer.devices=auto"], 1)],
)
def test_ranks_are_the_devices(overrides: list[str], ranks: int):
    assert local_ranks(compose_config(overrides)) == ranks


def test_ranks_that_somebody_else_starts_are_left_to_him(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert local_ranks(compose_config(["trainer.devices=3"])) == 1


def test_every_rank_needs_workers(command: Command, tmp_path: Path):
    told = command("train", "trainer=ddp", "trainer.accelerator=cpu", "run_dir=out")
    assert told.code == 2
    assert told.err.startswith("error: trainer.devices=2 makes 2 ranks, and workers.logical_workers=1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sweep_of_two_ranks_trains_each_job_in_its_own_directory(command: Command, tmp_path: Path):
    ranks = ("trainer=ddp", "trainer.accelerator=cpu", "workers.logical_workers=2")
    before = dict(os.environ)
    told = command("train", "-m", "seed=1,2", *ranks, "run_dir=sweep", *SHORT)
    assert told.code == 0
    states = [
        json.loads((job / "status.json").read_text())["state"] for job in sorted((tmp_path / "sweep").glob("?_*"))
    ]
    assert states == ["ok", "ok"]
    assert {path.name for path in tmp_path.iterdir()} == {"sweep"}  # no rank composed a run of its own
    assert {name for name in os.environ if name not in before} == set()
