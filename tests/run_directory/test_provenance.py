"""provenance.json: a session for each start of a run, with command, code and machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_rl.run_directory.provenance import PROVENANCE_FILE, command_line, read_provenance, record_session

COMMIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first")


def test_every_session_of_a_run_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["/opt/bin/lightning-rl", "train", "env.kwargs={a: 1}"])
    monkeypatch.chdir(tmp_path)
    record_session(tmp_path / "run", "cpu")
    record_session(tmp_path / "run", "cuda:0 (NVIDIA L4)")
    first, second = read_provenance(tmp_path / "run")
    assert first["command"] == "lightning-rl train 'env.kwargs={a: 1}'"
    assert first["directory"] == str(tmp_path) and first["git"] is None
    assert {"lightning_rl", "python", "torch", "numpy", "gymnasium"} <= set(first["versions"])
    assert (first["machine"]["device"], second["machine"]["device"]) == ("cpu", "cuda:0 (NVIDIA L4)")


def test_the_command_of_a_program_or_module():
    assert command_line(["train.py", "policy=ppo"]) == "python train.py policy=ppo"
    assert command_line(["/lib/lightning_rl/__main__.py", "train", "seed=1"]) == "lightning-rl train seed=1"


def test_the_commit_and_changes_of_tracked_files_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("")
    for command in (("git", "init", "-q"), ("git", "add", "own.py"), COMMIT):
        subprocess.run(command, check=True)
    record_session(tmp_path / "run")
    (tmp_path / "own.py").write_text("changed")
    record_session(tmp_path / "run")
    clean, changed = (session["git"] for session in read_provenance(tmp_path / "run"))
    assert len(clean["commit"]) == 40 and clean["commit"] == changed["commit"]
    assert (clean["changed"], changed["changed"]) == (False, True)


@pytest.mark.parametrize("content", ["", "{", "3", "[[1], 2]", "[" * 10_000])
def test_a_damaged_file_holds_no_sessions(tmp_path: Path, content: str):
    (tmp_path / PROVENANCE_FILE).write_text(content)
    assert read_provenance(tmp_path) == []
    record_session(tmp_path)
    assert len(json.loads((tmp_path / PROVENANCE_FILE).read_text())) == 1
