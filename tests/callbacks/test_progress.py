"""ProgressBar: a bar in a terminal; elsewhere a few plain lines without carriage returns."""

from __future__ import annotations

import io
import os
import pty
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_rl.callbacks import MetricsCallback, ProgressBar, StopCallback
from tests.callbacks.small_run import STEPS, At, SmallData, SmallPolicy, small_trainer


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


CODE = re.compile(r"\x1b\[[\d;?]*[a-zA-Z]")  # of a terminal: colors, the cursor, erasing a line


def frames_of(text: str) -> list[str]:
    """The lines that a terminal shows one after another in the place of the bar, without colors."""
    return [frame for frame in CODE.sub("", text).replace("\n", "").split("\r") if frame]


def bar_output(tmp_path: Path, stream: io.StringIO, total: int = 6, **keywords: float) -> str:
    metrics = MetricsCallback()
    bar = ProgressBar(metrics, total * STEPS, stream=stream)
    callbacks = [metrics, StopCallback(total * STEPS), bar]
    small_trainer(tmp_path, callbacks, **keywords).fit(SmallPolicy(), SmallData(evaluations=[5.0]))
    return stream.getvalue()


def test_without_a_terminal_there_are_the_first_and_the_last_line_of_a_short_run(tmp_path: Path):
    """Six iterations take a few milliseconds: all between are throttled to one line a second."""
    text = bar_output(tmp_path, io.StringIO())
    first, last = text.splitlines()
    assert first.startswith("100/600 env steps") and last.startswith("600/600 env steps")
    assert re.search(r"[\d,]+ fps  return 6.0  eval 5.0  best eval 5.0$", last)
    assert not re.search(r"[\r\x1b\b]", text)


def test_a_shorter_line_covers_the_one_before_where_only_the_carriage_return_is_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A notebook shows the output of a command so: it ignores the code that erases the line."""
    monkeypatch.setattr("lightning_rl.callbacks.progress.REDRAW_SECONDS", 0.0)
    frames = frames_of(bar_output(tmp_path, Terminal()))
    shown = ""
    for frame in frames:
        shown = frame + shown[len(frame) :]
        assert shown.strip() == frame.strip()
    assert len({len(frame.rstrip()) for frame in frames}) > 2


def test_without_a_terminal_lines_come_as_iterations_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lightning_rl.callbacks.progress.LINE_SECONDS", 0.0)
    lines = bar_output(tmp_path, io.StringIO(), total=4).splitlines()
    assert [line.split("/")[0] for line in lines] == ["100", "200", "300", "400", "400"]  # the last has the evaluation


def test_in_a_terminal_one_line_is_redrawn_and_ended(tmp_path: Path):
    text = bar_output(tmp_path, Terminal())
    assert text.count("\n") == 1 and CODE.sub("", text).endswith("\n")
    last = frames_of(text)[-1].rstrip()
    assert last.startswith("━━━━━━━━ 100% return 6.0 best eval 5.0 600/600 done ")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that tests set."""
    found = SimpleNamespace(now=0.0)
    monkeypatch.setattr("lightning_rl.callbacks.progress.time.monotonic", lambda: found.now)
    return found


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace) -> Callable[..., str]:
    """Gives the line of a terminal of so many columns, 45,056 env steps into a run of 2,000 a second."""

    def line(
        columns: int,
        latest: dict[str, float],
        best: dict[str, float],
        total: int = 100_000,
        policies: Sequence[str] = (),
    ) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        metrics, stream = MetricsCallback(), Terminal()
        metrics.latest |= {"time/fps": 5_321.0, **latest}
        metrics._best = best
        bar, policy = ProgressBar(metrics, total, stream=stream), SmallPolicy()
        policy.policies_to_train = policies
        policy.env_steps = 41_056
        bar.on_train_start(SimpleNamespace(), policy)  # type: ignore[arg-type]
        for _ in range(2):
            clock.now += 1.0
            policy.env_steps += 2_000
            bar.on_train_batch_end(SimpleNamespace(), policy, None, None, 0)  # type: ignore[arg-type]
        return frames_of(stream.getvalue())[-1].rstrip()

    return line


def test_a_narrow_terminal_drops_the_least_important_parts(shown: Callable[..., str]):
    """They come last; 54,944 steps at 2,000 a second are 27.5 s."""
    returns, best = {"rollout/ep_rew_mean": 203.1, "eval/ep_rew_mean": 470.0}, {"eval/ep_rew_mean": 475.0}
    important = "45% return 203.1 best eval 475.0 ETA 0:00:28"
    lines = {
        130: f"━━━━━╸━━━━━━━ {important} 45,056/100,000 collect 5,321 fps eval 470.0",
        80: f"━━━╸━━━━ {important} 45,056/100,000 collect 5,…",
        40: "━╸━━ 45% return 203.1 best eval 475.0 E…",
    }
    assert {columns: shown(columns, returns, best) for columns in lines} == lines


def test_the_returns_of_several_policies_in_training_follow_the_time_left(shown: Callable[..., str]):
    policies = {"rollout/hunter/ep_rew_mean": 12.3, "rollout/prey/ep_rew_mean": -4.0, "rollout/old/ep_rew_mean": 1.0}
    returns = {"rollout/ep_rew_mean": 8.3, **policies, "eval/ep_rew_mean": 9.0}
    trained = shown(150, returns, {"eval/ep_rew_mean": 9.5}, policies=["hunter", "prey"])
    assert "return 8.3 best eval 9.5 ETA 0:00:28 hunter 12.3 prey -4.0 45,056/" in trained
    assert "hunter" not in shown(150, returns, {}, policies=["hunter"])


def test_returns_of_pendulum_fit_into_45_columns_too(shown: Callable[..., str]):
    returns = {"rollout/ep_rew_mean": -1203.1, "eval/ep_rew_mean": -1170.0}
    line = shown(45, returns, {"eval/ep_rew_mean": -1001.25}, total=10_000_000)
    assert line.startswith("━━━━ 0% return -1203.1 best eval -1001.2 ")


def test_the_best_return_is_that_of_training_until_the_first_evaluation(shown: Callable[..., str]):
    line = shown(80, {"rollout/ep_rew_mean": 20.0}, {"rollout/ep_rew_mean": 25.0})
    assert "45% return 20.0 best return 25.0 ETA" in line


def seconds_left(bar: ProgressBar) -> float | None:
    assert bar._display is not None
    return bar._seconds_left(bar._display.tasks[0])


def test_the_time_left_follows_learning_and_not_the_fast_warm_up(clock: SimpleNamespace):
    """1,000 env steps without learning take 1 s, each of the next ones 14 ms: at 1,294 of 3,000, 23.9 s are left."""
    bar, policy = ProgressBar(MetricsCallback(), 3_000, stream=io.StringIO()), SmallPolicy()
    trainer: Any = SimpleNamespace(datamodule=SimpleNamespace(source=SimpleNamespace(ratio=None)))  # of replay
    bar.on_train_start(trainer, policy)
    for step in range(1, 1_295):
        clock.now += 1e-3 if step <= 1_000 else 14e-3
        policy.env_steps, policy.gradient_steps = step, max(0, step - 1_000)
        bar.on_train_batch_end(trainer, policy, None, None, 0)
        if step == 1_000:
            assert seconds_left(bar) is None and bar._phase == "warm-up"
    assert seconds_left(bar) == pytest.approx(1_706 * 14e-3, abs=1.0) and bar._phase == "collect"


def test_the_time_left_counts_evaluations_and_forgets_an_old_pace(clock: SimpleNamespace):
    """Ten times slower for the last minute; evaluation took 10 s in 20,000 steps."""
    bar, policy = ProgressBar(MetricsCallback(), 40_000, stream=io.StringIO()), SmallPolicy()
    trainer: Any = SimpleNamespace(datamodule=None)

    def iterate(count: int, seconds: float) -> None:
        for _ in range(count):
            clock.now += seconds
            policy.env_steps += 100
            bar.on_train_batch_end(trainer, policy, None, None, 0)

    bar.on_train_start(trainer, policy)
    iterate(140, 0.1)  # 14,000 steps of 1 ms, then 6,000 of 10 ms
    bar.on_validation_start(trainer, policy)
    clock.now += 10.0
    bar.on_validation_end(trainer, policy)
    iterate(60, 1.0)
    left = seconds_left(bar)
    assert left is not None and left == pytest.approx(20_000 * (10e-3 + 10 / 20_000), rel=0.25) and left > 20_000 * 5e-3


def test_in_a_terminal_the_phases_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lightning_rl.callbacks.progress.REDRAW_SECONDS", 0.0)
    text = CODE.sub("", bar_output(tmp_path, Terminal()))
    assert {"collect", "learn", "evaluate", "done"} <= set(re.findall(r"[a-z]+", text))


def test_a_line_is_never_wider_than_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert max(map(len, frames_of(bar_output(tmp_path, Terminal())))) <= 40


def test_an_error_is_shown_below_the_bar(tmp_path: Path):
    stream, metrics = Terminal(), MetricsCallback()

    def breaks(trainer: object) -> None:
        raise RuntimeError("broken")

    trainer = small_trainer(tmp_path, [metrics, At(2, breaks), ProgressBar(metrics, 600, stream=stream)])
    with pytest.raises(RuntimeError):
        trainer.fit(SmallPolicy(), SmallData())
    assert CODE.sub("", stream.getvalue()).endswith("\n")
    assert "100/600 stopped" in frames_of(stream.getvalue())[-1]


def test_the_progress_bar_is_silent_on_other_ranks(tmp_path: Path):
    stream, metrics = io.StringIO(), MetricsCallback()
    bar = ProgressBar(metrics, 600, stream=stream)
    bar.disable()
    small_trainer(tmp_path, [metrics, StopCallback(600), bar]).fit(SmallPolicy(), SmallData())
    assert stream.getvalue() == ""


def test_the_real_stdout_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A pipe gets plain lines, a pseudo-terminal the bar."""

    def written(read: int, write: int) -> bytes:
        with open(write, "w", encoding="utf-8") as stdout, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stdout)
            metrics = MetricsCallback()
            callbacks = [metrics, StopCallback(400), ProgressBar(metrics, 400)]
            small_trainer(tmp_path, callbacks).fit(SmallPolicy(), SmallData())
        with open(read, "rb", buffering=0) as output:
            return output.read(65536)

    piped = written(*os.pipe())
    assert b"400/400 env steps" in piped and b"\r" not in piped
    assert b"\r\x1b[2K" in written(*pty.openpty())
