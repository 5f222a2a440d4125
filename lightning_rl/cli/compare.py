"""`lightning-rl compare`: compares two runs, or two sets of seeds, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lightning_rl.cli.parser import EXIT_CODES, Parser

__all__ = ["compare"]


def compare(arguments: Sequence[str]) -> int:
    """Compare two runs, or two directories of seeds: compare A B [--json]."""
    parser = Parser(prog="lightning-rl compare", description=compare.__doc__)
    parser.add_argument("a", type=Path, help="a run directory, or a directory with several runs of one config")
    parser.add_argument("b", type=Path, help="the run or directory to compare it with")
    options = parser.options(arguments)
    from lightning_rl.reports import comparison  # numpy

    found = comparison.compare(options.a, options.b)
    parser.show(found, comparison.comparison_text(found))
    return EXIT_CODES["ok"]
