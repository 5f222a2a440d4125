"""Files that programs write are as the programs write them."""

from __future__ import annotations

from scripts import regenerate


def test_generated_files_are_up_to_date() -> None:
    # test_errors.py of the command line compares the messages, for which it runs the commands anyway.
    found = regenerate.differences(regenerate.QUICK.keys() - {regenerate.MESSAGES})
    assert not found, f"run python scripts/regenerate.py, and commit what it changes:\n{found}"
