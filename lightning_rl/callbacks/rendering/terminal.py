"""Shows frames in a terminal: pictures as half-block characters in color, texts as they are; and its keys."""

from __future__ import annotations

import io
import math
import os
import select
import sys
import time
from collections.abc import Callable
from typing import Any, Self, TextIO

import numpy as np
from rich.console import Console

from lightning_rl.callbacks.rendering.frames import Frame, StopWatching
from lightning_rl.callbacks.rendering.pictures import as_rgb, scale_to_fit

__all__ = ["Keyboard", "Player", "draw_in_terminal", "half_blocks"]

WINDOW_POLL_S = 0.02  # between looks at a window's keys
RESET = "\x1b[0m"
CLEAR_LINE, CLEAR_BELOW, TOP_LEFT = "\x1b[K", "\x1b[J", "\x1b[H"
CUBE = 6  # levels of each color among the 256 of a terminal


def half_blocks(picture: np.ndarray, columns: int, rows: int, *, true_color: bool = True) -> list[str]:
    """A picture as lines of "▀", whose color is the upper pixel, and whose background is the lower one.

    Args:
        picture: uint8 `[H, W, 3]`.
        columns, rows: most characters of a line, and most lines; the picture keeps its proportions.
        true_color: 24 bits per color; else the nearest of the terminal's 6 × 6 × 6 colors.
    """
    pixels = scale_to_fit(picture, columns, 2 * rows)
    if len(pixels) % 2:
        pixels = np.concatenate([pixels, np.zeros_like(pixels[:1])])
    if true_color:
        codes = [[f"2;{r};{g};{b}" for r, g, b in line] for line in pixels.tolist()]
    else:
        levels = np.rint(pixels / 255 * (CUBE - 1)).astype(int)
        codes = [[f"5;{code}" for code in line] for line in (16 + levels @ np.array([CUBE * CUBE, CUBE, 1])).tolist()]
    lines = []
    for upper, lower in zip(codes[::2], codes[1::2], strict=True):
        parts, before = [], None
        for colors in zip(upper, lower, strict=True):
            if colors != before:
                parts.append(f"\x1b[38;{colors[0]};48;{colors[1]}m")
                before = colors
            parts.append("▀")
        lines.append("".join([*parts, RESET]))
    return lines


class Keyboard:
    """Reads single keys of a terminal without Enter; a context that restores the terminal, whatever happens in it.

    Args:
        stream: standard input; if it is not a terminal, it has no keys.
        window: gives the next key that was pressed in a window, or "" if there is none.
    """

    def __init__(self, stream: TextIO | None = None, window: Callable[[], str] | None = None) -> None:
        self.stream = sys.stdin if stream is None else stream
        self.window = window
        self._before: Any = None

    @property
    def active(self) -> bool:
        """Whether keys are read."""
        return self._before is not None or self.window is not None

    def __enter__(self) -> Self:
        if self.stream.isatty():
            import termios
            import tty

            self._before = termios.tcgetattr(self.stream)
            tty.setcbreak(self.stream)  # Ctrl-C still interrupts
        return self

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            import termios

            termios.tcsetattr(self.stream, termios.TCSADRAIN, self._before)
            self._before = None

    def read(self, seconds: float | None) -> str:
        """The next key, or "" if none comes within `seconds` (`None`: wait for one, if there are keys)."""
        if self.window is None:
            return self._read_terminal(seconds)
        until = math.inf if seconds is None else time.monotonic() + seconds
        while not (key := self.window() or self._read_terminal(min(WINDOW_POLL_S, max(0, until - time.monotonic())))):
            if time.monotonic() >= until:
                return ""
        return key

    def _read_terminal(self, seconds: float | None) -> str:
        if self._before is None:
            time.sleep(seconds or 0.0)
            return ""
        ready, _, _ = select.select([self.stream], [], [], seconds)
        if not ready:
            return ""
        key = os.read(self.stream.fileno(), 1).decode(errors="replace")
        return key or "q"  # the terminal was closed


def draw_in_terminal(console: Console, rendered: Any, status: str) -> None:
    """Draw what an environment rendered, a picture or a text, and a line below.

    On a terminal frames are drawn one over the other, elsewhere written one below the other.

    Raises:
        StopWatching: the output is a pipe, and its reader has closed it.
    """
    columns, rows = console.size
    if isinstance(rendered, str | io.StringIO):
        text = rendered if isinstance(rendered, str) else rendered.getvalue()
        lines = text.rstrip("\n").split("\n")
    else:
        true_color = console.color_system == "truecolor"
        lines = half_blocks(as_rgb(rendered), columns, max(1, rows - 2), true_color=true_color)
    lines.append(status)
    if console.is_terminal:
        shown = [*lines[: rows - 2], status[: columns - 1]] if len(lines) > rows - 1 else lines
        text = TOP_LEFT + "\n".join(f"{line}{RESET}{CLEAR_LINE}" for line in shown) + CLEAR_BELOW
    else:
        text = "\n".join(lines) + "\n"
    try:
        console.file.write(text)
        console.file.flush()
    except BrokenPipeError as error:
        raise StopWatching("the reader of the output has closed it") from error


class Player:
    """Shows one environment's frames at a steady pace, and obeys keys: space pauses, n steps, q quits.

    Args:
        draw: draws a frame with a line of text.
        keyboard: the keyboard of the terminal.
        fps: frames per second; 0: as fast as they come.
    """

    def __init__(self, draw: Callable[[Any, str], None], keyboard: Keyboard, fps: float) -> None:
        self.draw, self.keyboard, self.seconds = draw, keyboard, 1.0 / fps if fps else 0.0
        self.episode, self.last_episode = 1, ""
        self.paused = False
        self.frame = Frame(None, 0, 0.0, False)
        self._next = time.monotonic()

    def show(self, frames: list[Frame]) -> None:
        """Draw a frame, and wait until the next one is due.

        Raises:
            StopWatching: q was pressed.
        """
        (frame,) = frames
        self.frame = frame
        self.draw(frame.rendered, self._describe())
        self._next = max(self._next + self.seconds, time.monotonic() - self.seconds)
        while True:
            left = None if self.paused else max(0.0, self._next - time.monotonic())
            key = self.keyboard.read(left)
            if key == "q":
                raise StopWatching("q was pressed")
            if key == "n":
                self.paused = True
                return
            if key == " ":
                self.paused = not self.paused
                self._next = time.monotonic() + self.seconds
                self.draw(frame.rendered, self._describe())
            elif not self.paused and time.monotonic() >= self._next:
                return

    def describe_position(self) -> str:
        """Step and return so far."""
        return f"step {self.frame.steps} · return {self.frame.episode_return:.6g}"

    def _describe(self) -> str:
        keys = ("space continues, n steps, q quits" if self.paused else "space pauses, q quits") * self.keyboard.active
        parts = f"episode {self.episode}", self.describe_position(), self.last_episode, keys
        return " · ".join(part for part in parts if part)
