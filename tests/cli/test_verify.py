"""`lightning-rl verify`, on curves of a short run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lightning_rl.reports.reference import MARKS, ReferenceCurves
from tests.cli.conftest import Command, not_refused
from tests.edited_runs import edit_config
from tests.reports.run_files import write_run

SHORT = ("policy=pg", "env=cartpole", "experiment=none", "total_env_steps=2000", "workers.fragment_length=32")


@pytest.fixture
def references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two references of the same short experiment: one that every run reaches, and one that none does."""
    directory = tmp_path / "references" / "reference"
    directory.mkdir(parents=True)
    for name, value in (("easy", 1.0), ("hard", 500.0)):
        ReferenceCurves(SHORT, 2000, (0, 1), [[value] * MARKS] * 2, {}).save(directory / f"{name}.json")
    monkeypatch.setattr("lightning_rl.reports.reference.reference_directory", lambda: directory)
    return directory


def test_verify_trains_and_compares(references: Path, command: Command) -> None:
    outcome = command("verify", "easy", "logger=csv")
    assert outcome.code == 0, outcome.err
    assert "easy: inside the band of the 2 reference runs\n  last evaluation " in outcome.out
    assert Path("runs/verify/easy_2/metrics.csv").is_file()  # a seed that no reference run has
    outcome = command("verify", "hard", "--run", "runs/verify/easy_2")
    assert outcome.code == 1 and "hard: BELOW the band of the 2 reference runs" in outcome.out
    assert f"of {MARKS} evaluations {MARKS} are below theirs, 0 above" in outcome.out
    compared = json.loads(command("verify", "hard", "--run", "runs/verify/easy_2", "--json").out)
    assert (compared["ok"], compared["low"], compared["margin"]) == (False, MARKS, 10.0)


def test_verify_refuses_a_run_of_another_length(references: Path, command: Command) -> None:
    outcome = command("verify", "easy", "total_env_steps=1000", "run_dir='a short'", "logger=csv")
    assert outcome.code == 2 and "total_env_steps=1000" in outcome.err


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"env": "Acrobot-v1"}, "run has env.id=Acrobot-v1; the reference runs have CartPole-v1"),
        ({"policy": {"_target_": "my:PPO"}}, "run has policy._target_=my:PPO; the"),
        ({"state": "failed"}, "run is failed"),
        ({"state": "running"}, "run is running"),
    ],
)
def test_verify_refuses_a_run_of_something_else(
    references: Path, command: Command, changes: dict[str, Any], reason: str
) -> None:
    same = {"env": "CartPole-v1", "policy": {"_target_": "lightning_rl.policies.PG"}, "returns": [5.0, 5.0]}
    edit_config(write_run(Path("run"), **{**same, **changes}), "total_env_steps", 2000)
    assert command("verify", "easy", "--run", "run").refusal.startswith(reason)


def test_verify_lists_experiments_and_names_mistakes(references: Path, command: Command) -> None:
    assert command("verify").out == "easy\nhard\n"
    assert not_refused(command, {"verify hrad": "'hard'", "verify hard seed=3 --run runs/x": "seed=3"}) == {}
