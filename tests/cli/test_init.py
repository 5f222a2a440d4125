"""`init` leaves a project in which everything runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lightning_rl
from lightning_rl.config.project import create_project, shipped_template
from tests.cli.conftest import Command, not_refused
from tests.edited_runs import status_of

ROOT = Path(__file__).parents[2]


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
    assert trained.code == 0 and status_of(project / "r")["state"] == "ok", trained.err
    assert "(lightning-rl evaluate r, " in trained.out and "(lightning-rl evaluate r --best)" in trained.out
    header = (project / "r" / "metrics.csv").read_text().splitlines()[0].split(",")
    assert {"train/share_right", "train/model/feature_penalty"} <= set(header)


@pytest.mark.parametrize(
    ("tool", "arguments", "shown"),
    [
        pytest.param("pytest", "-q -p no:cacheprovider", "3 passed", marks=pytest.mark.process),
        pytest.param("ruff", "check --no-cache .", "passed", marks=pytest.mark.process),
        pytest.param("ruff", "format --check --no-cache .", "formatted", marks=pytest.mark.process),
        pytest.param("pyright", f"--pythonpath {sys.executable}", "0 errors", marks=pytest.mark.slow),  # it reads torch
    ],
)
def test_the_tests_of_a_new_project_pass(tool: str, arguments: str, shown: str, tmp_path: Path):
    pytest.importorskip(tool)
    create_project(tmp_path / "walker")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-m", tool, *arguments.split()]
    how: dict[str, Any] = {"cwd": tmp_path / "walker", "env": environment, "timeout": 200}
    done = subprocess.run(program, **how, capture_output=True, text=True)
    assert done.returncode == 0 and shown in done.stdout, done.stdout


def test_the_template_is_part_of_the_package():
    assert shipped_template() == Path(lightning_rl.__file__).parent / "template"
    assert (shipped_template() / "conf" / "policy").is_dir()


def test_a_folder_that_cannot_be_is_refused(command: Command, tmp_path: Path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    cases = {
        "init my-project": "'my-project' is not a name of a Python package",
        "init class": "is not a name of a Python package",
        **{f"init {name}": "a module of that name is there already" for name in ("json", "torch", "tests")},
        "init full": "it is there already; give a new folder",
    }
    assert not_refused(command, cases) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
