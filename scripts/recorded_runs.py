"""Runs whose results are lines of a JSON file, so that a long table can be stopped and goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

__all__ = ["Run", "recorded", "run_missing"]

Run = dict[str, Any]


def recorded(path: Path) -> list[Run]:
    """The runs of a file; none if it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_missing(path: Path, cases: Iterable[Run], run: Callable[..., Run]) -> None:
    """Call `run(**case)` for each case that the file lacks, and add case and result as a line; it is printed, too."""
    known = recorded(path)
    for case in cases:
        if any(case.items() <= each.items() for each in known):
            continue
        line = json.dumps({**case, **run(**case)})
        with path.open("a") as file:
            file.write(f"{line}\n")
        print(line, flush=True)
