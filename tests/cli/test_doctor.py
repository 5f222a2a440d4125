"""`doctor` prints findings with fixes, and its exit code says whether something is bad."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Command


def test_doctor_examines_this_machine(command: Command, tmp_path: Path):
    outcome = command("doctor", "here", "--json")
    result = json.loads(outcome.out)
    subjects = {finding["subject"] for finding in result["findings"]}
    assert {"python", "torch", "threads", "GPU", "pictures", "display", "Ray session", "run directory"} <= subjects
    assert "extra atari" in subjects
    assert outcome.code == (1 if result["bad"] else 0)
    assert all(finding["fix"] for finding in result["findings"] if finding["level"] != "ok")
    assert not (tmp_path / "here").exists()


def test_what_is_bad_is_the_exit_code(command: Command):
    outcome = command("doctor", "/proc/runs")
    assert outcome.code == 1
    assert "bad   run directory" in outcome.out and "→ choose another run_dir" in outcome.out
