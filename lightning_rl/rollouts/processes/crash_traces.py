"""Files into which processes write their tracebacks when they crash, for the messages of the process that trains."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

__all__ = ["CrashTraces"]

LONGEST = 4000  # characters


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
        text = file.read_text(encoding="utf-8", errors="replace").strip() if file.is_file() else ""
        file.unlink(missing_ok=True)
        return f"\n{text[-LONGEST:]}" if text else ""

    def remove(self) -> None:
        """Delete all files; safe to call again."""
        shutil.rmtree(self.directory, ignore_errors=True)
