"""Reads back what loggers wrote."""

from __future__ import annotations

import csv
from pathlib import Path


def curve(directory: Path, tag: str) -> list[tuple[int, float]]:
    """Steps and values of a tag in TensorBoard files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory), {"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def csv_rows(path: Path) -> list[dict[str, str]]:
    """Rows of a file such as metrics.csv, by column."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
