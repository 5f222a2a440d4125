"""A bar in a terminal; elsewhere plain lines, few of them and without carriage returns."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lightning_rl.callbacks import MetricsCallback, ProgressBar, StopCallback
from lightning_rl.callbacks.progress import _clock
from tests.callbacks.small_run import STEPS, At, SmallData, SmallPolicy, small_trainer


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(tmp_path: Path, stream: io.StringIO, total: int = 6, **keywords: float) -> str:
    metrics = MetricsCallback()
    bar = ProgressBar(metrics, total * STEPS, stream=stream)
    callbacks = [metrics, StopCallback(total * STEPS), bar]
    small_trainer(tmp_path, callbacks, **keywords).fit(SmallPolicy(), SmallData(evaluations=[5.0]))
    return stream.getvalue()


def test_without_a_terminal_there_are_the_first_and_the_last_line_of_a_short_run(tmp_path: Path):
    """Six iterations take a few milliseconds: all between are throttled to one line a second."""
    lines = shown(tmp_path, io.StringIO()).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("100/600 env steps")
    assert lines[1].startswith("600/600 env steps")
    assert re.search(r"[\d,]+ fps  ETA 0:00  return 6.0  eval 5.0  best 5.0$", lines[1])


def test_without_a_terminal_there_is_no_control_character(tmp_path: Path):
    assert not re.search(r"[\r\x1b\b]", shown(tmp_path, io.StringIO()))


def test_without_a_terminal_lines_come_as_iterations_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lightning_rl.callbacks.progress.LINE_SECONDS", 0.0)
    lines = shown(tmp_path, io.StringIO(), total=4).splitlines()
    assert [line.split("/")[0] for line in lines] == [
        "100",
        "200",
        "300",
        "400",
        "400",
    ]  # the last one has the evaluation


def test_in_a_terminal_one_line_is_redrawn_and_ended(tmp_path: Path):
    text = shown(tmp_path, Terminal())
    assert text.count("\n") == 1 and text.endswith("done\n")
    last = text.split("\r")[-1]
    assert last.startswith("\x1b[2K████████ 100% 600/600 ")
    assert "return 6.0 best 5.0 done" in last


def test_a_wide_terminal_shows_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "120")
    last = shown(tmp_path, Terminal()).split("\r")[-1]
    assert last.startswith("\x1b[2K████████████████████ 100% 600/600 env steps  ")
    assert "return 6.0  eval 5.0  best 5.0  done" in last


def test_the_short_line_of_a_common_run_fits_into_80_columns(tmp_path: Path):
    metrics = MetricsCallback()
    metrics.latest |= {"time/fps": 5_321.0, "rollout/ep_rew_mean": 203.1, "eval/ep_rew_mean": 475.0}
    metrics._best = {"eval/ep_rew_mean": 475.0}
    bar = ProgressBar(metrics, 100_000, stream=Terminal())
    bar._env_steps, bar._rate = 45_056, 4_500.0
    assert len(f"{bar._bar(8)}{bar._text(short=True)} evaluate") < 80


def test_in_a_terminal_the_phases_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lightning_rl.callbacks.progress.REDRAW_SECONDS", 0.0)
    text = shown(tmp_path, Terminal())
    assert {"collect", "learn", "evaluate", "done"} <= set(re.findall(r"[a-z]+", text))


def test_a_line_is_never_wider_than_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "40")
    frames = shown(tmp_path, Terminal()).replace("\n", "").split("\r\x1b[2K")
    assert max(map(len, frames)) <= 39


def test_an_error_is_shown_below_the_bar(tmp_path: Path):
    stream, metrics = Terminal(), MetricsCallback()

    def breaks(trainer: object) -> None:
        raise RuntimeError("broken")

    trainer = small_trainer(tmp_path, [metrics, At(2, breaks), ProgressBar(metrics, 600, stream=stream)])
    with pytest.raises(RuntimeError):
        trainer.fit(SmallPolicy(), SmallData())
    assert stream.getvalue().endswith("stopped\n")


def test_other_ranks_show_nothing(tmp_path: Path):
    stream, metrics = io.StringIO(), MetricsCallback()
    bar = ProgressBar(metrics, 600, stream=stream)
    bar.disable()
    small_trainer(tmp_path, [metrics, StopCallback(600), bar]).fit(SmallPolicy(), SmallData())
    assert stream.getvalue() == ""


PROGRAM = """
    from pathlib import Path
    from lightning_rl.callbacks import MetricsCallback, ProgressBar, StopCallback
    from tests.callbacks.small_run import SmallData, SmallPolicy, small_trainer
    metrics = MetricsCallback()
    small_trainer(Path("."), [metrics, StopCallback(400), ProgressBar(metrics, 400)]).fit(SmallPolicy(), SmallData())
"""


def test_the_real_stdout_decides(tmp_path: Path):
    """A pipe gets plain lines, a pseudo-terminal the bar."""
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "xterm"}
    piped = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment, check=True).stdout
    assert b"400/400 env steps" in piped and b"\r" not in piped
    ours, theirs = pty.openpty()
    subprocess.run(command, stdout=theirs, stderr=subprocess.DEVNULL, cwd=tmp_path, env=environment, check=True)
    os.close(theirs)
    assert b"\r\x1b[2K" in os.read(ours, 65536)
    os.close(ours)


def test_the_clock_has_hours_minutes_seconds():
    assert (_clock(4.4), _clock(59.6), _clock(3661), _clock(360_000)) == ("0:04", "1:00", "1:01:01", "100:00:00")
