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
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]


def rooms() -> str:
    """The picture of the package's rooms and their imports."""
    import draw_rooms

    return draw_rooms.picture()


def messages() -> str:
    """What the package says to mistakes."""
    from tests import golden_messages

    return golden_messages.messages()


def feature_matrix() -> str:
    """Which algorithm goes with which feature."""
    from tests import feature_matrix

    return feature_matrix.page()


def lightning_tools() -> str:
    """The page on Lightning's tools with the table of what works."""
    import lightning_table

    return lightning_table.page()


MESSAGES = "tests/golden/messages.txt"
QUICK: dict[str, Callable[[], str]] = {"docs/rooms.svg": rooms, MESSAGES: messages}
SLOW: dict[str, Callable[[], str]] = {
    "docs/feature_matrix.md": feature_matrix,
    "docs/lightning_tools.md": lightning_tools,
}


def difference(name: str, new: str) -> str:
    """A unified diff between a file and what it should hold, "" if it holds that."""
    file = ROOT / name
    old = file.read_text(encoding="utf-8") if file.exists() else ""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), name, f"{name}, regenerated", lineterm="", n=1)
    return "\n".join(lines)


def differences(files: Iterable[str] = tuple(QUICK)) -> str:
    """The differences of all these files, "" if there are none."""
    return "\n".join(filter(None, (difference(name, {**QUICK, **SLOW}[name]()) for name in files)))


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="also the tables of what works")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file differs")
    options = parser.parse_args()
    files = {**QUICK, **(SLOW if options.all else {})}
    if options.check:
        found = differences(files)
        if found:
            print(f"{found}\n\nrun python scripts/regenerate.py, and commit what it changes", file=sys.stderr)
        return int(bool(found))
    for name, text in files.items():
        (ROOT / name).write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
