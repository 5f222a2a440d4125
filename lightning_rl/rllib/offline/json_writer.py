"""RLlib's files of experience, written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from lightning_rl.data.offline import json_files
from lightning_rl.rllib.offline.io_context import IOContext
from lightning_rl.rllib.offline.output_writer import OutputWriter
from lightning_rl.rllib.sample_batch import OWN_NAMES

__all__ = ["JsonWriter"]


class JsonWriter(json_files.JsonWriter, OutputWriter):
    """Writes batches of rows to `PATH/output-DATE_worker-INDEX_NUMBER.json`, one a line.

    Args:
        path: directory; made if it is not there.
        ioctx: has the worker's index.
        max_file_size: a file that has grown to this many bytes is followed by a new one.
        compress_columns: are packed; all others are lists of numbers.

    Raises:
        ConfigError: lz4 is not installed.
    """

    def __init__(
        self,
        path: str | Path,
        ioctx: IOContext | None = None,
        max_file_size: int = 64 * 2**20,
        compress_columns: Sequence[str] = ("obs", "new_obs"),
    ) -> None:
        own = [OWN_NAMES.get(name, name) for name in compress_columns]
        super().__init__(Path(path).expanduser(), max_file_size, own)
        self.ioctx = ioctx or IOContext()
        self._number = 0
        self._named = (-1, "")

    def file_name(self, number: int) -> str:
        """A file has the date of its first batch."""
        if self._named[0] != number:
            date = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
            self._named = number, f"output-{date}_worker-{self.ioctx.worker_index}_{number}.json"
        return self._named[1]
