"""What `doctor` says of a machine, and of one that lacks something."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from lightning_rl.diagnosis import machine
from lightning_rl.diagnosis.findings import Finding, as_json, as_text, exit_code
from lightning_rl.diagnosis.machine import (
    GIB,
    examine_devices,
    examine_directory,
    examine_memory,
    examine_ray,
    examine_rendering,
    examine_threads,
    usable_cores,
)


def test_findings_are_lines_with_fixes_counts_and_an_exit_code():
    findings = [Finding("a", "ok", "fine"), Finding("disk", "warn", "full\x1b[2J", "free some")]
    lines = ["ok    a     fine", "warn  disk  full[2J", "            → free some", "", "1 ok, 1 warn, 0 bad"]
    assert as_text(findings).splitlines() == lines
    assert exit_code(findings) == 0 and exit_code([*findings, Finding("b", "bad", "broken")]) == 1
    assert as_json(findings)["warn"] == 1
    assert as_json(findings)["findings"][0] == {"subject": "a", "level": "ok", "text": "fine", "fix": ""}


@pytest.mark.parametrize(("quota", "cores"), [("150000 100000", 1.5), ("max 100000", None), (None, None)])
def test_cores_are_those_of_the_container(quota: str | None, cores: float | None, tmp_path: Path):
    if quota is not None:
        (tmp_path / "cpu.max").write_text(f"{quota}\n")
    everything = usable_cores(tmp_path / "nothing")
    assert usable_cores(tmp_path) == min(everything, cores or everything) and everything >= 1


def test_more_threads_than_cores_are_a_warning(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine, "usable_cores", lambda: 2.5)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    finding = examine_threads()[1]
    assert finding.level == "warn" and finding.fix.startswith("export OMP_NUM_THREADS=2:")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert examine_threads()[1].level == "ok"


def test_little_memory_is_a_warning_and_none_is_bad(monkeypatch: pytest.MonkeyPatch):
    for free, level in ((5, "ok"), (2, "warn"), (0.5, "bad")):
        monkeypatch.setattr("lightning_rl.replay.storage.available_bytes", lambda free=free: free * GIB)
        assert examine_memory().level == level


def test_a_gpu_that_torch_cannot_see_is_a_warning(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(machine.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert [finding.level for finding in examine_devices()] == ["warn"]
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    assert [finding.level for finding in examine_devices()] == ["ok"]


def test_pictures_are_tried_in_a_process_that_may_fail(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine, "RENDER", "raise ImportError('pygame is not installed')")
    finding = examine_rendering()[0]
    assert finding.level == "warn" and "ImportError: pygame is not installed" in finding.text
    assert "classic-control" in finding.fix


def test_pictures_and_a_display_are_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DISPLAY", ":7")
    pictures, display = examine_rendering()
    assert pictures.text.endswith("works: 400×600×3") and display.text == "DISPLAY=:7"


def test_a_ray_session_is_started_only_in_full(monkeypatch: pytest.MonkeyPatch):
    tried: list[str] = []

    def fail(code: str, timeout: float) -> tuple[str, str]:
        tried.append(code)
        return "", "OSError: no ports"

    monkeypatch.setattr(machine, "try_program", fail)
    assert examine_ray(full=False)[0].level == "ok" and tried == []
    (finding,) = examine_ray(full=True)
    assert finding.level == "bad" and "OSError: no ports" in finding.text and tried == [machine.RAY]


@pytest.mark.ray
def test_a_real_ray_session_starts_and_ends():
    assert examine_ray(full=True)[0].text == "starts and ends"


def test_a_program_that_hangs_ends_at_its_limit():
    assert machine.try_program("import time; time.sleep(60)", 0.5) == ("", "it takes longer than 0.5 s")


def test_a_directory_is_tried_by_writing(tmp_path: Path):
    (finding,) = examine_directory(tmp_path / "not" / "yet")
    assert finding.level == "ok" and list(tmp_path.iterdir()) == []
    (finding,) = examine_directory(Path("/proc/runs"))
    assert finding.level == "bad" and "run_dir" in finding.fix


def test_a_full_disk_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for free, level in ((1.0, "warn"), (0.05, "bad")):
        monkeypatch.setattr(machine.shutil, "disk_usage", lambda path, free=free: SimpleNamespace(free=free * GIB))
        assert examine_directory(tmp_path)[0].level == level
