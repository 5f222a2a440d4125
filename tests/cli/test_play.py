"""`lightning-rl play`: in a real terminal with keys, in a pipe, in a window of a display that shows nothing."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_rl.callbacks.rendering.window import PygameWindow
from lightning_rl.runs import watch
from tests.cli.conftest import Command, not_refused
from tests.rollouts.counting import Counter
from tests.trained_runs import TrainedRuns, train

ROOT = Path(__file__).parents[2]
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")


@pytest.fixture(scope="module")
def cartpole(trained_runs: TrainedRuns, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_runs.copy("ppo", tmp_path_factory.mktemp("runs") / "cartpole")


@pytest.fixture(scope="module")
def frozen_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "lake"
    return train(run, "env.id=FrozenLake-v1", "env.max_episode_steps=20", "policy=dqn")


@pytest.fixture(autouse=True)
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in DISPLAYS:
        monkeypatch.delenv(name, raising=False)


def test_pictures_are_drawn_below_each_other_where_the_output_is_a_pipe(cartpole: Path, command: Command):
    arguments = ("--render", "rgb", "--fps", "0", "--episodes", "2")
    outcome = command("play", str(cartpole), *arguments)
    assert outcome.code == 0, outcome.err
    ends = re.findall(r"^episode (\d): return (\d+), length (\d+)$", outcome.out, flags=re.MULTILINE)
    assert [(number, length) for number, length, _ in ends] == [("1", ends[0][2]), ("2", ends[1][2])]
    drawn = re.findall(r"^episode \d · step (\d+) · return \d+", outcome.out, flags=re.MULTILINE)
    steps = [int(length) for _, _, length in ends]
    assert [int(step) for step in drawn] == [*range(steps[0] + 1), *range(steps[1] + 1)]
    assert "▀" in outcome.out
    assert "\x1b[?1049h" not in outcome.out  # not the alternate screen
    first = json.loads(command("evaluate", str(cartpole), "--episodes", "1", "--json").out)
    assert first["lengths"] == steps[:1]
    assert command("play", str(cartpole), *arguments).out == outcome.out
    assert command("play", str(cartpole), *arguments, "--seed", "1").out != outcome.out


def test_a_text_is_shown_as_the_environment_gives_it(frozen_lake: Path, command: Command):
    outcome = command("play", str(frozen_lake), "--render", "ansi", "--fps", "0", "--episodes", "1")
    assert outcome.code == 0, outcome.err
    assert "SFFF" in outcome.out or "\x1b[41mS\x1b[0mFFF" in outcome.out
    assert "episode 1 · step 0 · return 0" in outcome.out


def test_a_window_opens_where_there_is_a_display(cartpole: Path, command: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    import pygame

    outcome = command("play", str(cartpole), "--episodes", "1", "--env", "CartPole-v1")
    assert outcome.code == 0, outcome.err
    assert re.fullmatch(r"episode 1: return \d+, length \d+\n", outcome.out[outcome.out.index("episode 1:") :])
    assert not pygame.display.get_init()  # and was closed


def test_keys_and_the_closing_of_a_window_are_obeyed(cartpole: Path, monkeypatch: pytest.MonkeyPatch):
    """In the window itself, which has the keyboard's focus as soon as it opens; its title shows the keys."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    import pygame

    titles: list[str] = []
    presses = {3: " ", 4: "n", 5: "n", 6: " ", 9: ""}  # before this look at the keys; "": the window is closed

    class Pressed(PygameWindow):
        def read(self) -> str:
            if titles and (looks := len(titles)) in presses:
                key = presses.pop(looks)
                event = pygame.event.Event(pygame.KEYDOWN, unicode=key) if key else pygame.event.Event(pygame.QUIT)
                pygame.event.post(event)
            return super().read()

        def draw(self, rendered: Any, status: str) -> None:
            super().draw(rendered, status)
            titles.append(pygame.display.get_caption()[0])

    monkeypatch.setattr(watch, "PygameWindow", Pressed)
    lines: list[str] = []
    watch.play(cartpole, env="CartPole-v1", fps=0, say=lines.append)
    shown = [re.fullmatch(r"episode 1 · step (\d+) · return \d+ · (space .*q quits)", title) for title in titles]
    assert all(shown)
    paused = [int(match[1]) for match in shown if match and "continues" in match[2]]
    assert paused == [2, 3, 4] and [int(match[1]) for match in shown if match] == [0, 1, 2, 2, 3, 4, 4, 5, 6]
    assert lines == ["episode 1: stopped at step 6 · return 6"]


def test_what_cannot_be_shown_is_one_line(cartpole: Path, command: Command, tmp_path: Path):
    cases = {
        "": "--render auto: environment 'CartPole-v1' can be shown by human, rgb",
        "--render human": "human needs a display (DISPLAY)",
        "--render ansi": "environment 'CartPole-v1' can be shown by human, rgb",
        "--render rgb --fps -1": "fps=-1.0; expected 0.01 to 1000 frames per second, or 0: as fast as they come",
        "--render film": "invalid choice: 'film'",
        "--env lightning_rl.envs.toy_tasks:RepeatAfterMe": "its observation_space is not that of",
    }
    assert not_refused(command, {f"play {cartpole} {options}": words for options, words in cases.items()}) == {}
    run = train(tmp_path / "run", "env=repeat_after_me", "experiment=none", "policy=dqn")
    assert "render_modes []" in command("play", str(run)).err


class Endless(Counter):
    """Its episodes never end; it has pictures, or only a window."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, only_window: bool = False, render_mode: str | None = None) -> None:
        super().__init__(length=10**9)
        self.render_mode = render_mode
        if only_window:
            self.metadata = {"render_modes": ["human"]}

    def render(self) -> Any:
        return np.zeros((4, 4, 3), np.uint8)


def test_an_episode_without_end_is_cut_where_evaluations_cut_it(command: Command, tmp_path: Path):
    run = train(tmp_path / "run", "env.id=tests.cli.test_play:Endless", "evaluation.max_episode_steps=9")
    shown = command("play", str(run), "--render", "rgb", "--fps", "0", "--episodes", "2")
    ends = re.findall(r"^episode (\d): return \S+ length (\d+), cut there", shown.out, flags=re.MULTILINE)
    assert ends == [("1", "9"), ("2", "9")], shown.err
    shorter = command("play", str(run), "--render", "rgb", "--fps", "0", "--episodes", "1", "--max-steps", "4")
    assert "length 4, cut there" in shorter.out


def test_without_a_display_no_verb_is_named_that_cannot_show_a_window_s_environment(command: Command, tmp_path: Path):
    run = train(tmp_path / "run", "env.id=tests.cli.test_play:Endless", "env.kwargs.only_window=true")
    refusal = command("play", str(run)).refusal
    assert "can be shown by human (" in refusal and "`lightning-rl video` needs rgb_array" in refusal


def play_in_a_terminal(
    run: Path, *arguments: str, keys: Callable[[str], bytes], interrupt: str | None = None
) -> tuple[int, str, bool]:
    """Exit code, output, and whether the terminal was restored, of `play` in one of 60 × 20 characters.

    Args:
        run: the run.
        arguments: of the verb.
        keys: gets the output so far, and returns what is typed.
        interrupt: text after which SIGINT is sent, as by Ctrl-C.
    """
    user, program = pty.openpty()
    fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
    before = termios.tcgetattr(program)
    environment = {name: value for name, value in os.environ.items() if name not in DISPLAYS}
    environment |= {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT), "COLUMNS": "60", "LINES": "20"}
    command = [sys.executable, "-m", "lightning_rl", "play", str(run), *arguments]
    process = subprocess.Popen(command, stdin=program, stdout=program, stderr=subprocess.PIPE, env=environment)
    output, deadline = b"", time.monotonic() + 60
    try:
        while process.poll() is None and time.monotonic() < deadline:
            if select.select([user], [], [], 0.05)[0]:
                output += os.read(user, 65536)
                os.write(user, keys(output.decode(errors="ignore")))
                if interrupt is not None and interrupt in output.decode(errors="ignore"):
                    process.send_signal(signal.SIGINT)
                    interrupt = None
        code = process.wait(timeout=5)
        while select.select([user], [], [], 0.1)[0]:
            output += os.read(user, 65536)
        return code, output.decode(errors="ignore"), termios.tcgetattr(program) == before
    finally:
        process.kill()
        os.close(user)
        os.close(program)


@pytest.mark.slow
def test_keys_pause_step_and_quit_in_a_terminal_that_is_given_back(cartpole: Path):
    typed: list[bytes] = []

    def keys(output: str) -> bytes:
        steps = [int(step) for step in re.findall(r"episode 1 · step (\d+) ", output)]
        script = {0: (1, b" "), 1: (2, b"n"), 2: (3, b"n"), 3: (4, b"q")}
        after, key = script.get(len(typed), (10**6, b""))
        if len(steps) and "space" in output and len(steps) > after:
            typed.append(key)
            return key
        return b""

    code, output, restored = play_in_a_terminal(cartpole, "--fps", "2", keys=keys)
    assert (code, restored) == (0, True)
    assert typed == [b" ", b"n", b"n", b"q"]
    assert "\x1b[?1049h" in output
    end = output[output.rindex("\x1b[?1049l") :]
    assert "\x1b[?25h" in end  # the cursor is back
    assert re.search(r"episode 1: stopped at step \d+ · return \d+", end)
    assert "space continues, n steps, q quits" in output
    picture = output.split("\x1b[H")[3]
    assert 10 < picture.count("\n") <= 19
    assert 20 < max(line.count("▀") for line in picture.split("\n")) <= 60


@pytest.mark.slow
def test_a_terminal_shows_every_episode_and_then_their_returns(cartpole: Path):
    code, output, restored = play_in_a_terminal(cartpole, "--fps", "0", "--episodes", "2", keys=lambda output: b"")
    assert (code, restored) == (0, True)
    end = output[output.rindex("\x1b[?1049l") :]
    lines = re.findall(r"episode \d: return \d+, length \d+", end)
    assert [line[:9] for line in lines] == ["episode 1", "episode 2"]


@pytest.mark.slow
def test_ctrl_c_gives_the_terminal_back(cartpole: Path):
    code, output, restored = play_in_a_terminal(cartpole, "--fps", "5", interrupt="step 2", keys=lambda output: b"")
    assert (code, restored) == (130, True)
    assert "\x1b[?25h" in output[output.rindex("\x1b[?1049l") :]
