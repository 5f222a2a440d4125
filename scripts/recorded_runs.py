"""Runs whose results are lines of a JSON file, so that a long table can be stopped and continues where it was."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

__all__ = ["Run", "fill_table", "recorded", "run_missing"]

Run = dict[str, Any]


def recorded(path: Path) -> list[Run]:
    """The runs of a file; none if it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_missing(path: Path, cases: Iterable[Run], run: Callable[..., Run]) -> None:
    """Call `run(**case)` for each case that the file lacks, add case and result as a line, and print it."""
    known = recorded(path)
    for case in cases:
        if any(case.items() <= each.items() for each in known):
            continue
        line = json.dumps({**case, **run(**case)})
        with path.open("a") as file:
            file.write(f"{line}\n")
        print(line, flush=True)


def fill_table(
    description: str | None, axes: dict[str, Sequence[str]], run: Callable[..., Run], table: Callable[[list[Run]], str]
) -> None:
    """The command line of a table over ten seeds: run what is missing, seed by seed, and print the table.

    Args:
        description: the description of the command.
        axes: the choices of each keyword of `run` beside `seed`; an option named after it, with an s, selects some.
        run: called with one choice of each, and `seed`.
        table: Markdown of what was run so far.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, choices in axes.items():
        parser.add_argument(f"--{name}s", nargs="+", default=list(choices), choices=list(choices))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--json", type=Path, required=True, help="a line is added for each run")
    parser.add_argument("--table", action="store_true", help="run nothing")
    args = parser.parse_args()
    names = ("seed", *axes)
    asked = [
        dict(zip(names, chosen, strict=True)) for chosen in product(*(getattr(args, f"{name}s") for name in names))
    ]
    run_missing(args.json, [] if args.table else asked, run)
    print(table(recorded(args.json)))
