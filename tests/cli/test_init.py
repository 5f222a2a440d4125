"""`init` leaves a project in which everything runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lightning_rl
from lightning_rl.config.project import create_project, shipped_template
from tests.cli.conftest import Command

ROOT = Path(__file__).parents[2]


def run_in(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A program of this interpreter in a folder, as a user starts it there."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=200
    )


def test_a_new_project_trains(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    outcome = command("init", "walker")
    assert outcome.code == 0 and outcome.out.endswith(
        "\ncd walker\nlightning-rl train policy=my_ppo env=corridor\npython -m pytest\n"
    )
    project = tmp_path / "walker"
    assert sorted(str(path) for path in create_project(tmp_path / "other" / "walker")) == sorted(
        str(tmp_path / "other" / line) for line in outcome.out.splitlines() if line.startswith("walker/")
    )
    assert "my_project" not in "".join(path.read_text() for path in project.rglob("*") if path.is_file())
    assert len((project / "README.md").read_text().split("\n\n", 1)[1].splitlines()) == 5

    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(str(project))
    trained = command("train", "policy=my_ppo", "env=corridor", "total_env_steps=600", "run_dir=r")
    assert trained.code == 0, trained.err
    assert "(lightning-rl evaluate r, " in trained.out
    assert "(lightning-rl evaluate r --best)" in trained.out
    assert json.loads((project / "r" / "status.json").read_text())["state"] == "ok"
    header = (project / "r" / "metrics.csv").read_text().splitlines()[0].split(",")
    assert {"train/share_right", "train/model/feature_penalty"} <= set(header)


@pytest.mark.process
def test_the_tests_of_a_new_project_pass(tmp_path: Path):
    create_project(tmp_path / "walker")
    tested = run_in(tmp_path / "walker", "pytest", "-q", "-p", "no:cacheprovider")
    assert tested.returncode == 0 and "3 passed" in tested.stdout, tested.stdout


@pytest.mark.process
@pytest.mark.parametrize(
    "tool", [("ruff", "check", "--no-cache", "."), ("ruff", "format", "--check", "--no-cache", ".")]
)
def test_a_new_project_is_clean(tool: tuple[str, ...], tmp_path: Path):
    pytest.importorskip("ruff")
    create_project(tmp_path / "a_first_project")
    done = run_in(tmp_path / "a_first_project", *tool)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow  # pyright reads torch
def test_a_new_project_has_types(tmp_path: Path):
    pytest.importorskip("pyright")
    create_project(tmp_path / "walker")
    done = run_in(tmp_path / "walker", "pyright", "--pythonpath", sys.executable)
    assert done.returncode == 0, done.stdout


def test_the_template_is_part_of_the_package():
    assert shipped_template() == Path(lightning_rl.__file__).parent / "template"
    assert (shipped_template() / "conf" / "policy").is_dir()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("my-project", "'my-project' is no name of a Python package"),
        ("class", "is no name of a Python package"),
        ("json", "a module of that name is there already"),
        ("torch", "a module of that name is there already"),
        ("tests", "a module of that name is there already"),
        ("full", "it is there already; give a new folder"),
    ],
)
def test_a_folder_that_cannot_be_is_refused(name: str, why: str, command: Command, tmp_path: Path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    outcome = command("init", name)
    assert outcome.code == 2 and why in outcome.err and outcome.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
