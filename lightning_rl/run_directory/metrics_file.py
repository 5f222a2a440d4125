"""Reads metrics.csv, as far as it holds numbers: it may be damaged, and its last line may be half written."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from lightning_rl.run_directory.regular_files import read_text

__all__ = ["METRICS_FILE", "points_of_csv"]

METRICS_FILE = "metrics.csv"
STEP = "env_steps"


def points_of_csv(file: Path) -> Iterator[tuple[str, int, float]]:
    """Metric, env steps and value of each number, in the order of the file; other cells are left out."""
    text = read_text(file, errors="replace")
    head, *rows = map(cells, text[: text.rfind("\n") + 1].split("\n"))
    if STEP not in head:
        return
    at = head.index(STEP)
    metrics = [(index, name) for index, name in enumerate(head) if index != at]
    for row in rows:
        if len(row) != len(head) or not re.fullmatch("[0-9]{1,18}", row[at]):
            continue
        step = int(row[at])
        for index, name in metrics:
            if cell := row[index]:
                try:
                    yield name, step, float(cell)
                except ValueError:
                    continue


def cells(line: str) -> list[str]:
    """The cells of a line; none if it is damaged. Each line is read alone: a stray quote must not take those after."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []
