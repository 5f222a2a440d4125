"""status.json: names the process that wrote it; a damaged file is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lightning_rl.errors import ConfigError
from lightning_rl.run_directory.status import read_status, read_status_or_empty, write_status


def test_the_process_is_the_one_that_writes(tmp_path: Path):
    """Not the one of the status that is written again, which may have been another."""
    write_status(tmp_path / "status.json", "failed", pid=1, host="elsewhere", heartbeat="long ago", error="Broken")
    status = read_status(tmp_path / "status.json")
    assert (status["pid"], status["error"]) == (os.getpid(), "Broken")
    assert status["host"] != "elsewhere" and status["heartbeat"] != "long ago"


WRONG_KINDS = ('{"state": "ok", "return": "9"}', '{"state": "ok", "error": {}}', '{"state": "ok", "policies": [1]}')


@pytest.mark.parametrize("content", ["", "[1]", '{"state"', '{"state": 3}', "{}", *WRONG_KINDS])
def test_a_damaged_status_is_named_and_can_be_deleted(tmp_path: Path, content: str):
    file = tmp_path / "status.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match=r"status.json"):
        read_status(file)
    assert read_status_or_empty(file) == {}
    file.unlink()
    assert read_status(file) == {}
