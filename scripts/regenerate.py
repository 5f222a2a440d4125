"""Writes every file of the repository that a program makes: after a change, run this and commit what differs.

    python scripts/regenerate.py            # the quick ones: half a minute
    python scripts/regenerate.py --all      # also the tables of what works, which try it: about ten minutes
    python scripts/regenerate.py --check    # write nothing; print the differences, and exit with 1 if there are any

Pages that only the documentation's site needs are made when it is built (`reference_pages.py`), and are not kept.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable
from pathlib import Path
from pkgutil import resolve_name

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))


MESSAGES = "tests/golden/messages.txt"
QUICK = {"docs/rooms.svg": "scripts.draw_rooms:picture", MESSAGES: "tests.golden_messages:messages"}
QUICK |= {"docs/rllib_keys.md": "scripts.rllib_keys:page", "docs/rllib_names.md": "tests.rllib.document_names:page"}
QUICK |= {"docs/command_line.md": "scripts.command_line:page"}
SLOW = {
    "docs/feature_matrix.md": "tests.feature_matrix:page",
    "docs/lightning.md": "scripts.lightning_table:page",
}
"""File → the function that gives its text."""


def text_of(name: str) -> str:
    """What a file should hold."""
    return resolve_name({**QUICK, **SLOW}[name])()


def difference(name: str) -> str:
    """A unified diff between a file and what it should hold, "" if it holds that."""
    file = ROOT / name
    old = file.read_text(encoding="utf-8") if file.exists() else ""
    new = text_of(name).splitlines()
    lines = difflib.unified_diff(old.splitlines(), new, name, f"{name}, regenerated", lineterm="", n=1)
    return "\n".join(lines)


def differences(files: Iterable[str] = tuple(QUICK)) -> str:
    """The differences of all these files, "" if there are none."""
    return "\n".join(filter(None, map(difference, files)))


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="also the tables of what works")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file differs")
    options = parser.parse_args()
    files = [*QUICK, *(SLOW if options.all else ())]
    if options.check:
        found = differences(files)
        if found:
            print(f"{found}\n\nrun python scripts/regenerate.py, and commit what it changes", file=sys.stderr)
        return int(bool(found))
    for name in files:
        (ROOT / name).write_text(text_of(name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
