"""How far a run is, in environment steps: a bar in a terminal, a plain line now and then anywhere else."""

from __future__ import annotations

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
ERASE = "\r\x1b[2K"


class ProgressBar(LightningProgressBar):
    """Env steps of the total, steps per second now, time left, mean return of the window, best return, the phase.

    Args:
        metrics: whose numbers are shown.
        total_env_steps: where the bar ends; `None` shows no bar and no time left.
        stream: where to; `None` is the stdout of the moment.
    """

    def __init__(
        self, metrics: MetricsCallback, total_env_steps: int | None = None, stream: TextIO | None = None
    ) -> None:
        super().__init__()
        self.metrics, self.total, self.stream = metrics, total_env_steps, stream
        self._enabled = True
        self._phase = "collect"
        self._env_steps = 0
        self._rate = 0.0  # env steps per second of wall time, everything included
        self._shown = False
        self._line = ""
        self._drawn_at = self._counted_at = 0.0

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
        """Start counting; a resumed run starts where it stopped."""
        self._env_steps, self._counted_at, self._phase = int(pl_module.env_steps), time.monotonic(), "collect"
        if self._is_terminal():
            self._draw(force=True)

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """The experience is there."""
        self._enter("learn")

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """An iteration is over."""
        now, steps = time.monotonic(), int(pl_module.env_steps)
        rate = (steps - self._env_steps) / max(now - self._counted_at, 1e-9)
        self._rate = rate if not self._rate else 0.9 * self._rate + 0.1 * rate
        self._env_steps, self._counted_at = steps, now
        self._enter("collect")
        if not self._is_terminal():
            self._draw(force=not self._shown)

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Evaluation starts."""
        self._enter("evaluate")

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Evaluation is over."""
        self._enter("collect")

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Leave the last state on the screen."""
        self._finish("done")

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Leave the last state on the screen, above the error."""
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
        line = f"{self._bar(20)}{self._line}  {self._phase}"
        if len(line) > columns:
            line = f"{self._bar(8)}{self._text(short=True)} {self._phase}"
        self._write(ERASE + line[:columns])

    def _text(self, short: bool = False) -> str:
        """The numbers; `short` fits into 80 columns."""
        latest, unit = self.metrics.latest, "" if short else " env steps"
        parts = [f"{self._env_steps:,}{'' if self.total is None else f'/{self.total:,}'}{unit}"]
        if "time/fps" in latest:
            parts.append(f"{latest['time/fps']:,.0f} fps")
        if self.total is not None and self._rate:
            parts.append(f"ETA {_clock(max(self.total - self._env_steps, 0) / self._rate)}")
        returns = {
            "return": latest.get(TRAIN_RETURN),
            "eval": latest.get(EVAL_RETURN),
            "best": self.metrics.best_return,
        }
        if short:
            del returns["eval"]
        parts += [f"{label} {value:.1f}" for label, value in returns.items() if value is not None]
        return (" " if short else "  ").join(parts)

    def _bar(self, width: int) -> str:
        if not self.total:
            return ""
        full = min(width, width * self._env_steps // self.total)
        return f"{'█' * full}{'░' * (width - full)} {min(100, 100 * self._env_steps // self.total)}% "

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
