"""Files into which processes write their tracebacks when they crash, for the messages of the process that trains."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

__all__ = ["CrashTraces", "crash_summary"]

LONGEST = 4000  # characters


def crash_summary(text: str) -> str:
    """What a person needs of what a process wrote when it ended, at most about `LONGEST` characters.

    After a crash in native code Python writes the error, all threads with the innermost call first, and the names of
    all extension modules (hundreds, where SciPy is loaded): the error and the calls of the thread that crashed are
    kept. Of any other text the end is kept, where a traceback has its innermost call.
    """
    _, fatal, after = text.partition("Fatal Python error")
    if not fatal:
        return text.strip()[-LONGEST:]
    error, _, threads = (fatal + after).partition("\n")
    crashed = threads[max(threads.find("Current thread"), 0) :].lstrip("\n").partition("\n\n")[0]
    return f"{error}\n{crashed[:LONGEST]}".strip()


class CrashTraces:
    """A directory with a file for each place in a set of processes."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="lightning_rl_"))

    def file(self, number: int) -> Path:
        """The file of the process in a place."""
        return self.directory / f"process_{number}.txt"

    def take(self, number: int) -> str:
        """The traceback that the last process in a place has left, or ""; the file is deleted."""
        file = self.file(number)
        text = crash_summary(file.read_text(encoding="utf-8", errors="replace")) if file.is_file() else ""
        file.unlink(missing_ok=True)
        return f"\n{text}" if text else ""

    def remove(self) -> None:
        """Delete all files; safe to call again."""
        shutil.rmtree(self.directory, ignore_errors=True)
