"""Reads back the curves that loggers wrote."""

from __future__ import annotations

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def curve(directory: Path, tag: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(directory), {"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]
