"""Shows the progress of a run in environment steps: a bar in a terminal, one line a second at most elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from datetime import timedelta
from typing import Any, TextIO

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ProgressBar as LightningProgressBar
from rich.progress import BarColumn, Progress, Task, TextColumn
from rich.table import Column

from lightning_rl.callbacks.metric_names import EVAL_RETURN, TRAIN_RETURN
from lightning_rl.callbacks.metrics import MetricsCallback
from lightning_rl.callbacks.progress_display import progress_display

__all__ = ["ProgressBar"]

REDRAW_SECONDS = 0.1
LINE_SECONDS = 1.0
BY_IMPORTANCE = ("percent", "return", "best", "eta", "policies", "steps", "phase", "fps", "eval")


class ProgressBar(LightningProgressBar):
    """Shows env steps of the total, steps per second, time left, mean return of the window, best return, and the phase.

    The time left is computed from the recent pace and from the time that evaluation has taken per step. While a replay
    buffer warms up, without gradient steps, it is not shown: the pace of learning is not known yet.

    Where several policies learn, their mean returns follow the time left. A terminal that is too narrow for the whole
    line shows its beginning, where the most important parts are.

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
        self._display: Progress | None = None  # during training; it cannot be pickled
        self._policies: list[str] = []  # the ids of several policies in training
        self._phase = self._between_steps = "collect"
        self._first_step = self._first_gradient_step = 0
        self._warming_up = False
        self._evaluation_seconds = self._evaluation_began = 0.0
        self._drawn_at = -LINE_SECONDS
        self._line = ""  # the last one that was printed

    def enable(self) -> None:
        """Show progress."""
        self._enabled = True

    def disable(self) -> None:
        """Show nothing (ranks other than the first)."""
        self._enabled = False

    def print(self, *args: Any, sep: str = " ", end: str = "\n", **kwargs: Any) -> None:
        """Print above the bar."""
        display = self._display or progress_display(self._out())
        display.console.print(*args, sep=sep, end=end, soft_wrap=True)

    # -- hooks ---------------------------------------------------------------------------------------------------------
    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start counting, in a resumed run from its env steps."""
        self._first_step = int(pl_module.env_steps)
        self._first_gradient_step = int(pl_module.gradient_steps)
        self._policies = list(pl_module.policies_to_train)
        source = getattr(getattr(trainer, "datamodule", None), "source", None)
        acts = getattr(source, "acts", True)
        self._between_steps = "collect" if acts else "learn"  # which is all that a run on data alone does
        self._warming_up = acts and hasattr(source, "ratio")  # of gradient steps to env steps, of a replay feed
        self._evaluation_seconds, self._drawn_at, self._line = 0.0, -LINE_SECONDS, ""
        bar = [BarColumn(shutil.get_terminal_size().columns // 10)] if self.total else []
        rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        display = progress_display(
            self._out(),
            *bar,
            TextColumn("{task.fields[line]}", markup=False, table_column=rest),
            expand=True,  # a notebook returns at \r, and does not erase the line
            get_time=lambda: time.monotonic() - self._evaluation_seconds,  # so that the pace is that of training
        )
        display.disable |= not self._enabled
        display.add_task("", total=self.total, completed=self._first_step, line="")
        display.start()
        display.console.show_cursor()  # a run that is killed would leave it hidden
        self._display = display
        self._enter(self._acting)

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Switch from collecting to learning."""
        self._enter(self._acting if self._warming_up else "learn")

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count an iteration."""
        if (display := self._display) is None:
            return
        task, steps = display.task_ids[0], int(pl_module.env_steps)
        if self._warming_up and pl_module.gradient_steps != self._first_gradient_step:
            self._warming_up = False
            display.reset(task, completed=steps)  # forgets the pace
        display.update(task, completed=steps)
        self._policies = list(pl_module.policies_to_train)
        self._enter(self._acting)
        if display.disable and time.monotonic() - self._drawn_at >= LINE_SECONDS:
            self._print_line(display.tasks[0])

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Show that the evaluation runs."""
        self._evaluation_began = time.monotonic()
        self._enter("evaluate")

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Return to training."""
        self._evaluation_seconds += time.monotonic() - self._evaluation_began
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
        display = self._display
        if display is not None and not display.disable and time.monotonic() - self._drawn_at >= REDRAW_SECONDS:
            self._redraw(display)

    def _finish(self, phase: str) -> None:
        self._phase = phase
        if (display := self._display) is None:
            return
        if display.disable:
            self._print_line(display.tasks[0])
        else:
            self._redraw(display)
        display.stop()
        self._display = None

    def _redraw(self, display: Progress) -> None:
        self._drawn_at = time.monotonic()
        parts = self._parts(display.tasks[0])
        line = " ".join(parts[name] for name in BY_IMPORTANCE if name in parts)
        display.update(display.task_ids[0], line=line, refresh=True)

    def _print_line(self, task: Task) -> None:
        self._drawn_at = time.monotonic()
        parts = self._parts(task)
        parts["steps"] += " env steps"
        line = "  ".join(text for name, text in parts.items() if name not in ("percent", "phase"))
        if self._enabled and line != self._line:
            print(line, file=self._out(), flush=True)
        self._line = line

    def _parts(self, task: Task) -> dict[str, str]:
        """The parts of the line by name."""
        latest, parts = self.metrics.latest, {}
        if self.total:
            parts["percent"] = f"{int(task.percentage)}%"
        total = "" if self.total is None else f"/{self.total:,}"
        parts["steps"] = f"{int(task.completed):,}{total}"
        if "time/fps" in latest:
            parts["fps"] = f"{latest['time/fps']:,.0f} fps"
        if (left := self._seconds_left(task)) is not None:
            parts["eta"] = f"ETA {timedelta(seconds=round(left))}"
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
        return "warm-up" if self._warming_up else self._between_steps

    def _seconds_left(self, task: Task) -> float | None:
        """Time left at the recent pace; `None` during a warm-up, at the end, and before the second iteration."""
        if self.total is None or self._warming_up or task.finished or task.time_remaining is None:
            return None
        evaluating = self._evaluation_seconds / max(task.completed - self._first_step, 1)
        return task.time_remaining + (self.total - task.completed) * evaluating

    def _out(self) -> TextIO:
        return self.stream if self.stream is not None else sys.stdout
