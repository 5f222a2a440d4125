"""JobProgress: a line per running job in a terminal, lines of events elsewhere."""

from __future__ import annotations

import io

import pytest

from lightning_rl.runs import job_progress
from lightning_rl.runs.job_progress import JobProgress

STATUS = {"state": "ok", "env_steps": 1000, "return": 20.0, "evaluation": 30.0, "seconds": 2.0, "error": None}
BEFORE = {**STATUS, "return": 10.0, "evaluation": None}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(stream: io.StringIO) -> str:
    with JobProgress(2, stream=stream) as progress:
        progress.skip(0, "seed=1")
        progress.begin(1, "seed=2", 1000, "runs/1")
        progress.update(1, 1, 2, 500, 7.25, False)
        progress.refresh()
        progress.end(1, [BEFORE, STATUS])
    return stream.getvalue()


def test_without_a_terminal_each_event_is_a_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(job_progress, "LINE_SECONDS", 0.0)
    assert show(io.StringIO()).splitlines() == [
        "job 0 (seed=1) is done already  [1 of 2]",
        "job 1 (seed=2) begins in runs/1",
        "job 1 (seed=2): 500/1,000 env steps, run 2 of 2  return 7.2",
        "job 1 (seed=2) ok: 2,000 env steps, return 15.0, evaluation 30.0, 4.0 s  [2 of 2]",
    ]


def test_lines_of_a_job_keep_their_distance():
    assert not [line for line in show(io.StringIO()).splitlines() if "500/1,000" in line]


def test_a_terminal_shows_a_bar_with_the_share_of_all_runs_of_a_job(monkeypatch: pytest.MonkeyPatch):
    """Run 2 of 2 is half done: 75 %."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    text = show(Terminal())
    assert "job 1 (seed=2)" in text and " 75%" in text and "return 7.2, run 2 of 2" in text
    assert "job 1 (seed=2) ok: 2,000 env steps" in text
