"""Reads back what loggers wrote."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any


def events_of(directory: Path, kind: str) -> Any:
    """TensorBoard files, read with all events of a kind, such as "scalars"."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory), {kind: 0})
    events.Reload()
    return events


def curve(directory: Path, tag: str) -> list[tuple[int, float]]:
    """Steps and values of a tag in TensorBoard files."""
    return [(event.step, event.value) for event in events_of(directory, "scalars").Scalars(tag)]


def csv_rows(path: Path) -> list[dict[str, str]]:
    """Rows of a file such as metrics.csv, by column."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
