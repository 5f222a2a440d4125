"""Shows how the jobs of a sweep or a search are doing: a line per running job in a terminal, else a line per event."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TextIO

from lightning_rl.errors import printable

if TYPE_CHECKING:
    from rich.progress import Task

__all__ = ["JobProgress"]

LONGEST_LABEL = 60  # a longer one is shown only when its job begins
LINE_SECONDS = 10.0  # between two lines of one job where there is no terminal


class JobProgress:
    """`with JobProgress(6) as progress:` shows each running job, and a line for each that has ended.

    Args:
        jobs: number of jobs; `None`: not known.
        word: what a job is called, "job" or "trial".
        stream: output; `None` is the current stdout.
    """

    def __init__(self, jobs: int | None = None, word: str = "job", stream: TextIO | None = None) -> None:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn  # every verb imports this file

        from lightning_rl.callbacks.progress_display import progress_display

        self.jobs, self.word, self.ended = jobs, word, 0
        self.running: dict[int, Task] = {}
        self.display = progress_display(
            sys.stdout if stream is None else stream,
            TextColumn("{task.description}", markup=False),
            BarColumn(20),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[value]}{task.fields[run]}"),
            TimeRemainingColumn(),
            transient=True,
        )

    def __enter__(self) -> Self:
        self.display.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.display.stop()

    def begin(self, number: int, label: str, total: int, run_dir: str) -> None:
        """A job begins."""
        name = self.name(number, label)
        fields = {"steps_of_run": total, "value": "", "run": "starts", "printed_at": time.monotonic()}
        self.display.add_task(name, total=total, **fields)
        self.running[number] = self.display.tasks[-1]
        if self.display.disable:
            label = f" ({label})" if label else ""
            self.print(f"{self.word} {number}{label} begins in {run_dir}")

    def skip(self, number: int, label: str) -> None:
        """A job is not begun, as it is done."""
        self.ended += 1
        self.print(f"{self.name(number, label)} is done already  {self.count()}")

    def update(
        self, number: int, index: int, runs: int, env_steps: int, value: float | None, is_evaluation: bool
    ) -> None:
        """A job has sent its progress.

        Args:
            number: the number of the job.
            index: the index of its run.
            runs: how many runs it has.
            env_steps: the number of env steps of that run.
            value: mean return, of an evaluation or of the last training episodes.
            is_evaluation: which of them.
        """
        task = self.running[number]
        steps = task.fields["steps_of_run"]
        fields: dict[str, Any] = {"run": f", run {index + 1} of {runs}" if runs > 1 else ""}
        if value is not None:
            fields["value"] = f"{'evaluation' if is_evaluation else 'return'} {value:.1f}"
        self.display.update(task.id, completed=index * steps + env_steps, total=runs * steps, **fields)
        if self.display.disable and time.monotonic() - task.fields["printed_at"] >= LINE_SECONDS:
            task.fields["printed_at"] = time.monotonic()
            done = f"{env_steps:,}/{steps:,} env steps{task.fields['run']}"
            self.print(f"{task.description}: {done}  {task.fields['value']}".rstrip())

    def end(self, number: int, statuses: Sequence[Mapping[str, Any]]) -> None:
        """A job has ended; its runs left these statuses."""
        task = self.running.pop(number)
        self.ended += 1
        self.display.remove_task(task.id)
        self.print(f"{task.description} {outcome(statuses)}  {self.count()}")

    def count(self) -> str:
        """How many jobs have ended: "[2 of 6]"."""
        return f"[{self.ended}]" if self.jobs is None else f"[{self.ended} of {self.jobs}]"

    def name(self, number: int, label: str) -> str:
        """A job's number and, if that is short, what distinguishes it from the others."""
        return f"{self.word} {number} ({label})" if 0 < len(label) <= LONGEST_LABEL else f"{self.word} {number}"

    def refresh(self) -> None:
        """Redraw the bars."""
        self.display.refresh()

    def print(self, line: str) -> None:
        """Print a line, above the bars; it may hold the text of an error."""
        self.display.console.print(printable(line), soft_wrap=True)


def outcome(statuses: Sequence[Mapping[str, Any]]) -> str:
    """How the runs of a job ended: the state of the last one, env steps, returns, seconds, and an error."""
    if not statuses:
        return "did not begin"
    last = statuses[-1]
    parts = [f"{sum(status['env_steps'] for status in statuses):,} env steps"]
    for key in ("return", "evaluation"):
        known = [status[key] for status in statuses if status[key] is not None]
        if known:
            parts.append(f"{key} {sum(known) / len(known):.1f}")
    parts.append(f"{sum(status['seconds'] for status in statuses):.1f} s")
    error = f": {last['error']}" if last["error"] else ""
    return f"{last['state']}: {', '.join(parts)}{error}"
