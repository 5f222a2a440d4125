"""scripts/gpu_check.py: which wheels are installed, and the page that it writes."""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.run_processes import import_file

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> Any:
    return import_file(ROOT / "scripts" / "gpu_check.py")


def test_only_what_is_missing_or_older_is_installed(script: Any):
    assert script.is_installed("torch", "2.6.0")
    assert script.is_installed("pytest", version("pytest"))
    assert not script.is_installed("pytest", "999.1")
    assert not script.is_installed("no_such_package", "1.0")
    assert not script.is_installed("antlr4_python3_runtime", "4.9.2")  # OmegaConf reads files of one version only


def test_every_package_has_a_version_and_is_no_torch(script: Any):
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    assert set(script.PACKAGES) <= pinned
    assert not [name for name in script.PACKAGES if name.startswith(("torch=", "nvidia", "ray", "triton"))]


def test_the_page_shows_outcomes_and_figures_and_keeps_its_text(script: Any):
    rows = [{"test": "a", "outcome": "passed"}, {"test": "b", "outcome": "failed", "why": "two devices"}]
    figures = [{"side": "eager", "value": 1234, "unit": "steps/s"}]
    parts = {
        "tests": {"state": "failed", "seconds": 3.0, "rows": rows},
        "sac": {"state": "cut", "seconds": 9.0, "rows": figures},
    }
    page = script.page({"machine": {"card": "NVIDIA T", "torch": "2.11"}, "parts": parts})
    assert "card: NVIDIA T, torch: 2.11." in page
    assert "| tests | failed | 1 | 1 | 0 | 3.0 |" in page and "- failed: `b`: two devices" in page
    assert "| sac | eager | 1,234 | steps/s |" in page
    before = script.PAGE.read_text(encoding="utf-8").partition(script.MARKS[0])[0]
    assert page.startswith(before) and page.count(script.MARKS[1]) == 1


def test_a_part_that_is_cut_leaves_its_results(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The part writes one result and then waits for ever."""
    waiting = tmp_path / "waiting.py"
    waiting.write_text(
        "import json, sys, time\n"
        "file = sys.argv[sys.argv.index('--rows') + 1]\n"
        "open(file, 'a').write(json.dumps({'side': 'first', 'value': 1, 'unit': 'x'}) + '\\n')\n"
        "time.sleep(600)\n"
    )
    monkeypatch.setattr(script, "__file__", str(waiting))
    part = script.run_part("sac", tmp_path, "cpu", dict(os.environ), limit=3.0)
    assert part["state"] == "cut" and [row["side"] for row in part["rows"]] == ["first"]


def test_a_run_without_its_tests_passing_ends_with_an_error(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    failing = {"state": "failed", "rows": [{"test": "b", "outcome": "failed", "why": "w"}], "seconds": 1.0}
    passing = {"state": "passed", "rows": [{"card": "none"}], "seconds": 1.0}
    monkeypatch.setattr(script, "run_part", lambda name, *others: failing if name == "tests" else passing)
    assert not script.run_parts(["tests"], tmp_path, "cpu", {}, 100)
    assert script.run_parts(["sac"], tmp_path, "cpu", {}, 100)
    assert json.loads((tmp_path / "gpu_check.json").read_text())["machine"] == {"card": "none"}
    assert "gpu_check" not in sys.modules
