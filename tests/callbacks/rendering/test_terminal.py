"""Pictures as colored characters, keys, and the pace."""

from __future__ import annotations

import io
import os
import pty
import re
import termios
import time

import numpy as np
import pytest
from rich.console import Console

from lightning_rl.callbacks.rendering.frames import Frame, StopWatching
from lightning_rl.callbacks.rendering.terminal import Keyboard, Player, draw_in_terminal, half_blocks

RED, BLUE = (255, 0, 0), (0, 0, 255)


def test_a_character_shows_two_pixels_and_colors_are_named_where_they_change():
    picture = np.array([[RED, RED], [BLUE, BLUE]], np.uint8)
    assert half_blocks(picture, 2, 1) == ["\x1b[38;2;255;0;0;48;2;0;0;255m▀▀\x1b[0m"]


def test_without_true_color_the_nearest_of_the_cube_is_taken():
    """Red is 16 + 5 · 36 = 196, blue 16 + 5 = 21; a missing last row is black, 16."""
    picture = np.array([[RED], [BLUE], [RED]], np.uint8)
    lines = half_blocks(picture, 1, 2, true_color=False)
    assert lines == ["\x1b[38;5;196;48;5;21m▀\x1b[0m", "\x1b[38;5;196;48;5;16m▀\x1b[0m"]


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (20, 50), (3, 3)])
def test_a_picture_fits_into_the_terminal(columns: int, rows: int):
    lines = half_blocks(np.random.default_rng(0).integers(0, 255, (210, 160, 3), np.uint8), columns, rows)
    assert 0 < len(lines) <= rows
    assert all(0 < line.count("▀") <= columns for line in lines)
    assert len({line.count("▀") for line in lines}) == 1


@pytest.fixture
def terminal():
    """Both ends of a terminal: the user's file descriptor, and a stream for the program."""
    user, program = pty.openpty()
    with os.fdopen(program, "r") as stream:
        yield user, stream
    os.close(user)


def test_keys_are_read_without_enter_and_the_terminal_is_restored(terminal):
    user, stream = terminal
    before = termios.tcgetattr(stream)
    with pytest.raises(LookupError), Keyboard(stream) as keyboard:
        assert not termios.tcgetattr(stream)[3] & termios.ICANON
        assert keyboard.read(0.0) == ""
        os.write(user, b"nq")
        assert [keyboard.read(5.0), keyboard.read(5.0)] == ["n", "q"]
        raise LookupError
    assert termios.tcgetattr(stream) == before


def test_without_a_terminal_there_are_no_keys(tmp_path):
    (tmp_path / "input").write_text("q")
    with (tmp_path / "input").open() as stream, Keyboard(stream) as keyboard:
        assert not keyboard.active
        assert keyboard.read(0.0) == ""


def draw(rendered: object, status: str, *, is_terminal: bool) -> list[str]:
    """What is written to the terminal, of 40 × 10 characters, by two frames; split before each drawing."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=is_terminal, width=40, height=10, color_system="256")
    draw_in_terminal(console, rendered, status)
    draw_in_terminal(console, rendered, status)
    return written.getvalue().split("\x1b[H")


def test_a_frame_is_drawn_over_the_one_before():
    picture = np.random.default_rng(0).integers(0, 255, (90, 90, 3), np.uint8)
    _, first, second = draw(picture, "step 3", is_terminal=True)
    assert first.count("▀") == 8 * 16  # 10 lines less 2, and as many pixels wide as high
    assert first.endswith("step 3\x1b[0m\x1b[K\x1b[J")
    assert second.startswith(first)


def test_a_long_text_is_cut_so_that_the_line_below_stays():
    drawn = draw("\n".join(f"row {row}" for row in range(30)), "status", is_terminal=True)[-1]
    assert drawn.count("\n") < 10
    assert ["row 7" in drawn, "row 8" in drawn, "status" in drawn] == [True, False, True]


def test_without_a_terminal_nothing_moves():
    assert draw("a\nb\n", "status", is_terminal=False) == ["a\nb\nstatus\n" * 2]


def frame(steps: int) -> Frame:
    return Frame("text", steps, float(steps), False)


def play(stream, fps: float) -> tuple[Player, list[str], Keyboard]:
    drawn: list[str] = []
    keyboard = Keyboard(stream)
    return Player(lambda rendered, status: drawn.append(status), keyboard, fps), drawn, keyboard


def test_frames_keep_their_pace(tmp_path):
    """10 frames at 50 per second: the tenth is shown 0.2 s after the first one's turn began."""
    with open(os.devnull) as stream:
        player, drawn, keyboard = play(stream, 50)
        began = time.monotonic()
        with keyboard:
            for step in range(10):
                player.show([frame(step)])
    assert time.monotonic() - began > 0.15
    assert drawn[3] == "episode 1 · step 3 · return 3"


def test_space_pauses_n_steps_and_q_quits(terminal):
    user, stream = terminal
    player, drawn, keyboard = play(stream, 0)
    with keyboard:
        player.show([frame(0)])
        os.write(user, b" n")  # the pause is drawn, and n shows one more frame
        player.show([frame(1)])
        assert player.paused
        os.write(user, b" ")
        player.show([frame(2)])
        assert not player.paused
        os.write(user, b"q")
        with pytest.raises(StopWatching):
            player.show([frame(3)])
    shown = [re.findall(r"step (\d).* · space (\w+)", line)[0] for line in drawn]
    assert [step + word for step, word in shown] == [
        "0pauses",
        "1pauses",
        "1continues",
        "2continues",
        "2pauses",
        "3pauses",
    ]


def test_a_reader_that_closes_the_pipe_ends_the_watching():
    """No error of the environment, within whose step the frame is drawn."""
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(StopWatching, match="closed"), os.fdopen(writer, "wb", buffering=0) as raw:
        draw_in_terminal(Console(file=io.TextIOWrapper(raw)), "text", "status")
