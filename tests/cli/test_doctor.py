"""`doctor` prints findings with fixes, and its exit code says whether something is bad."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Command


def test_doctor_examines_this_machine(command: Command, tmp_path: Path):
    outcome = command("doctor", "here", "--seconds", "0.05", "--json")
    result = json.loads(outcome.out)
    subjects = {finding["subject"] for finding in result["findings"]}
    assert {"python", "torch", "threads", "GPU", "pictures", "display", "Ray session", "run directory"} <= subjects
    assert sum("speed: " in subject for subject in subjects) == 3 and "extra atari" in subjects
    assert outcome.code == (1 if result["bad"] else 0)
    assert all(finding["fix"] for finding in result["findings"] if finding["level"] != "ok")
    assert not (tmp_path / "here").exists()


def test_what_is_bad_is_the_exit_code(command: Command):
    outcome = command("doctor", "/proc/runs", "--seconds", "0")
    assert outcome.code == 1
    assert "bad   run directory" in outcome.out and "→ give another run_dir=" in outcome.out
    assert "speed:" not in outcome.out


def test_a_senseless_time_is_refused(command: Command):
    assert command("doctor", "--seconds", "-1").err == "error: --seconds -1.0; expected 0 to 60\n"
