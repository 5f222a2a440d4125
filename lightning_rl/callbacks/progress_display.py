"""Rich's progress display, as a run and a sweep show their progress in a terminal. Imports no Lightning."""

from __future__ import annotations

import os
from typing import Any, TextIO

from rich.console import Console
from rich.progress import Progress, ProgressColumn

__all__ = ["progress_display"]


def progress_display(stream: TextIO, *columns: ProgressColumn, **options: Any) -> Progress:
    """Rich's progress display; disabled where no terminal shows it, as in a pipe, a notebook, or with TERM=dumb.

    Args:
        stream: output.
        columns: the columns of each bar.
        options: the options of `rich.progress.Progress`.
    """
    is_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    console = Console(
        file=stream, force_terminal=is_terminal, force_jupyter=False, markup=False, emoji=False, highlight=False
    )
    return Progress(
        *columns,
        console=console,
        disable=not is_terminal,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
        **options,
    )
