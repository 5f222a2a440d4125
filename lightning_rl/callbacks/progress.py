"""Shows the progress of a run in environment steps: a bar in a terminal, one line a second at most elsewhere."""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from typing import Any, TextIO

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ProgressBar as LightningProgressBar

from lightning_rl.callbacks.metric_names import EVAL_RETURN, TRAIN_RETURN
from lightning_rl.callbacks.metrics import MetricsCallback

__all__ = ["ProgressBar"]

REDRAW_SECONDS = 0.1
LINE_SECONDS = 1.0
RECENT_SECONDS = 20.0  # time constant of the pace for the time left
ERASE = "\r\x1b[2K"

# Parts that a narrow terminal leaves out, in this order; the share done, the return and the best return always remain.
DISPENSABLE = ("eval", "total", "fps", "phase", "bar", "steps", "eta")
WORTH_LESS_THAN_POLICIES = DISPENSABLE[:5]  # than the returns of several policies, if these fit in their place


class Pace:
    """Seconds per environment step, as an exponentially weighted mean over time."""

    def __init__(self) -> None:
        self._seconds = self._steps = 0.0

    def add(self, seconds: float, steps: int) -> None:
        """Add an iteration of `steps` environment steps."""
        left = math.exp(-seconds / RECENT_SECONDS)
        self._seconds, self._steps = left * self._seconds + seconds, left * self._steps + steps

    @property
    def seconds_per_step(self) -> float | None:
        """The mean; `None` before the first step."""
        return self._seconds / self._steps if self._steps else None


class ProgressBar(LightningProgressBar):
    """Shows env steps of the total, steps per second, time left, mean return of the window, best return, and the phase.

    The time left is computed from the recent pace and from the time that evaluation has taken per step. While a replay
    buffer warms up, without gradient steps, it is not shown: the pace of learning is not known yet.

    Where several policies learn, their mean returns follow the sum over the agents.

    Args:
        metrics: callback whose numbers are shown.
        total_env_steps: env steps at which the bar is full; `None` shows no bar and no time left.
        stream: output; `None` is the current stdout.
    """

    def __init__(
        self, metrics: MetricsCallback, total_env_steps: int | None = None, stream: TextIO | None = None
    ) -> None:
        super().__init__()
        self.metrics, self.total, self.stream = metrics, total_env_steps, stream
        self._enabled = True
        self._policies: list[str] = []  # the ids of several policies in training
        self._phase = "collect"
        self._env_steps = self._first_step = self._first_gradient_step = 0
        self._warming_up = False
        self._pace = Pace()
        self._evaluation_seconds = 0.0
        self._shown = False
        self._line = ""
        self._width = 0  # of the bar that is drawn
        self._drawn_at = self._counted_at = self._evaluation_began = 0.0

    def enable(self) -> None:
        """Show progress."""
        self._enabled = True

    def disable(self) -> None:
        """Show nothing (ranks other than the first)."""
        self._enabled = False

    def print(self, *args: Any, sep: str = " ", **kwargs: Any) -> None:
        """Print above the bar."""
        self._erase()
        print(*args, sep=sep, **{"file": self._out(), **kwargs})

    # -- hooks ---------------------------------------------------------------------------------------------------------
    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start counting, in a resumed run from its env steps."""
        self._env_steps = self._first_step = int(pl_module.env_steps)
        self._first_gradient_step = int(pl_module.gradient_steps)
        self._policies = list(getattr(pl_module, "policies_to_train", ()))
        self._warming_up = hasattr(getattr(trainer, "datamodule", None), "ratio")  # of a replay DataModule
        self._pace, self._evaluation_seconds, self._counted_at = Pace(), 0.0, time.monotonic()
        self._phase = self._acting
        if self._is_terminal():
            self._draw(force=True)

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Switch from collecting to learning."""
        self._enter(self._acting if self._warming_up else "learn")

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Redraw after an iteration."""
        if self._warming_up and pl_module.gradient_steps != self._first_gradient_step:
            self._warming_up, self._pace = False, Pace()
        now, steps = time.monotonic(), int(pl_module.env_steps)
        self._pace.add(now - self._counted_at, steps - self._env_steps)
        self._env_steps, self._counted_at = steps, now
        self._policies = list(getattr(pl_module, "policies_to_train", ()))
        self._enter(self._acting)
        if not self._is_terminal():
            self._draw(force=not self._shown)

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Show that the evaluation runs."""
        self._evaluation_began = time.monotonic()
        self._enter("evaluate")

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Return to training."""
        now = time.monotonic()
        self._evaluation_seconds += now - self._evaluation_began
        self._counted_at += now - self._evaluation_began
        self._enter(self._acting)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Leave the last state in the terminal."""
        self._finish("done")

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Leave the last state in the terminal, above the error."""
        self._finish("stopped")

    # -- drawing -------------------------------------------------------------------------------------------------------
    def _enter(self, phase: str) -> None:
        self._phase = phase
        if self._is_terminal():
            self._draw()

    def _finish(self, phase: str) -> None:
        self._phase = phase
        if self._is_terminal():
            self._draw(force=True)
            self._write("\n" if self._line else "")
        elif self._line != self._text():
            self._draw(force=True)
        self._line = ""

    def _draw(self, force: bool = False) -> None:
        now = time.monotonic()
        terminal = self._is_terminal()
        if not force and now - self._drawn_at < (REDRAW_SECONDS if terminal else LINE_SECONDS):
            return
        self._drawn_at, self._shown, self._line = now, True, self._text()
        if not terminal:
            self._write(f"{self._line}\n")
            return
        columns = shutil.get_terminal_size().columns - 1
        line, before = self._fitting(columns), self._width
        self._width = len(line)
        self._write(ERASE + line.ljust(min(before, columns)))  # a notebook returns at \r, and does not erase

    def _text(self) -> str:
        """The numbers as a line without a bar."""
        parts = self._parts()
        return "  ".join(text for name, text in parts.items() if name not in ("bar", "percent", "phase"))

    def _fitting(self, columns: int) -> str:
        """The line, shortened to the width of the terminal by leaving out parts."""
        line = "  ".join(self._parts().values())
        if len(line) <= columns:
            return line
        parts = self._parts(short=True)
        line = self._leave_out(WORTH_LESS_THAN_POLICIES, dict(parts), columns)
        if len(line) > columns:
            parts.pop("policies", None)
            line = self._leave_out(DISPENSABLE, parts, columns)
        return line[:columns]

    def _leave_out(self, names: tuple[str, ...], parts: dict[str, str], columns: int) -> str:
        """The parts as a line, without as many of those names, in their order, as it takes to fit."""
        line = " ".join(parts.values())
        for name in names:
            if len(line) <= columns:
                break
            if name == "total":
                parts["steps"] = f"{self._env_steps:,}"
            else:
                parts.pop(name, None)
            line = " ".join(parts.values())
        return line

    def _parts(self, short: bool = False) -> dict[str, str]:
        """The parts of the line by name, in order."""
        latest, parts = self.metrics.latest, {}
        if self.total:
            width, done = 8 if short else 20, min(1.0, self._env_steps / self.total)
            full = int(width * done)
            parts["bar"] = f"{'█' * full}{'░' * (width - full)}"
            parts["percent"] = f"{int(100 * done)}%"
        total = "" if self.total is None else f"/{self.total:,}"
        parts["steps"] = f"{self._env_steps:,}{total}{'' if short else ' env steps'}"
        if "time/fps" in latest:
            parts["fps"] = f"{latest['time/fps']:,.0f} fps"
        if (left := self._seconds_left()) is not None:
            parts["eta"] = f"ETA {_clock(left)}"
        if TRAIN_RETURN in latest:
            parts["return"] = f"return {latest[TRAIN_RETURN]:.1f}"
        returns = {name: latest.get(f"rollout/{name}/ep_rew_mean") for name in self._policies}
        if len(returns) > 1 and (shown := [f"{name} {mean:.1f}" for name, mean in returns.items() if mean is not None]):
            parts["policies"] = " ".join(shown)
        if EVAL_RETURN in latest:
            parts["eval"] = f"eval {latest[EVAL_RETURN]:.1f}"
        if (best := self.metrics.best_return) is not None:
            parts["best"] = f"best {'eval' if EVAL_RETURN in latest else 'return'} {best:.1f}"
        parts["phase"] = self._phase
        return parts

    @property
    def _acting(self) -> str:
        return "warm-up" if self._warming_up else "collect"

    def _seconds_left(self) -> float | None:
        """Time left at the recent pace; `None` during a warm-up and at the end."""
        pace = self._pace.seconds_per_step
        if self.total is None or pace is None or self._warming_up or self._env_steps >= self.total:
            return None
        evaluating = self._evaluation_seconds / max(self._env_steps - self._first_step, 1)
        return (self.total - self._env_steps) * (pace + evaluating)

    def _erase(self) -> None:
        if self._line and self._is_terminal():
            self._write(ERASE)

    def _out(self) -> TextIO:
        return self.stream if self.stream is not None else sys.stdout

    def _is_terminal(self) -> bool:
        return self._out().isatty() and os.environ.get("TERM") != "dumb"

    def _write(self, text: str) -> None:
        if self._enabled and text:
            self._out().write(text)
            self._out().flush()


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours = f"{minutes // 60}:{minutes % 60:02d}" if minutes >= 60 else f"{minutes}"
    return f"{hours}:{second:02d}"
