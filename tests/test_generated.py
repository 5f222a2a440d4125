"""Files that programs write are as the programs write them."""

from __future__ import annotations

from scripts import regenerate


def test_generated_files_are_up_to_date() -> None:
    found = regenerate.differences()
    assert not found, f"run python scripts/regenerate.py, and commit what it changes:\n{found}"
