"""Reads runs from their directories, as data: config, status, curves, provenance; imports nothing that they name.

Curves come from metrics.csv, or from TensorBoard's event files where a run has no CSV, or one without numbers. A run
may still be running, or may have failed before it wrote anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightning_rl.callbacks.metric_names import RETURNS
from lightning_rl.config.keys import place_of, value_at
from lightning_rl.errors import ConfigError
from lightning_rl.run_directory.config_file import CONFIG_FILE, read_config, read_overrides
from lightning_rl.run_directory.listing import run_directories, state_of
from lightning_rl.run_directory.metrics_file import METRICS_FILE, points_of_csv
from lightning_rl.run_directory.provenance import read_provenance
from lightning_rl.run_directory.regular_files import is_regular
from lightning_rl.run_directory.status import STATUS_FILE, read_status_or_empty

__all__ = ["RunRecord", "Series", "read_run", "read_runs"]


@dataclass(frozen=True, slots=True)
class Series:
    """A metric over a run: env steps `[N]`, rising, and finite or not finite values `[N]`; N is at least 1."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]

    @property
    def last(self) -> float:
        """The newest value."""
        return float(self.values[-1])

    @property
    def finite(self) -> Series | None:
        """Without NaN and infinite values; `None` if nothing is left."""
        kept = np.isfinite(self.values)
        return Series(self.steps[kept], self.values[kept]) if kept.any() else None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a run left behind.

    Attributes:
        directory: the directory of the run.
        config: its resolved config; empty if it failed before it wrote one.
        overrides: the overrides of a sweep's job, key → value as text.
        status: content of status.json; empty without one.
        state: as in `list runs`: "ok", "running", "failed", "interrupted", "dead", …
        curves: metric → its values over the run.
        sessions: content of provenance.json.
    """

    directory: Path
    config: Mapping[str, Any]
    overrides: Mapping[str, str]
    status: Mapping[str, Any]
    state: str
    curves: Mapping[str, Series]
    sessions: Sequence[Mapping[str, Any]]

    @property
    def name(self) -> str:
        """The directory's name."""
        return self.directory.absolute().name

    @property
    def seed(self) -> Any:
        """The seed, from the config or the overrides; `None` if neither has one."""
        return self.config.get("seed", self.overrides.get("seed"))

    @property
    def env(self) -> str:
        """The environment's id or import path, or the data where there is none; "?" if it is unknown."""
        return str(place_of(self.config) or self.overrides.get("env", "?"))

    @property
    def policy(self) -> str:
        """The class of the policy; "?" if it is unknown."""
        target = value_at(self.config, "policy._target_") or self.overrides.get("policy", "?")
        return re.split(r"[.:]", str(target))[-1]

    @property
    def failed(self) -> bool:
        """Whether the run ended with an error, or its process died."""
        return self.state in ("failed", "dead")

    @property
    def running(self) -> bool:
        """Whether the run's process lives."""
        return self.state in ("starting", "running", "silent")

    @property
    def env_steps(self) -> int:
        """Env steps so far."""
        return max((int(series.steps[-1]) for series in self.curves.values()), default=0)

    @property
    def seconds(self) -> float | None:
        """Seconds of training so far."""
        total = self.curve("time/total_s")
        return None if total is None else total.last

    def curve(self, metric: str) -> Series | None:
        """The finite values of a metric; `None` if it has none."""
        series = self.curves.get(metric)
        return None if series is None else series.finite

    @property
    def has_return(self) -> bool:
        """Whether there is a return: of evaluations, of training, or estimated."""
        return any(self.curve(metric) for metric in RETURNS)

    def seconds_at(self, steps: NDArray[Any]) -> NDArray[np.float64] | None:
        """Seconds of training at some env steps; `None` if the run did not record time."""
        total = self.curve("time/total_s")
        if total is None:
            return None
        return np.interp(steps, np.concatenate([[0], total.steps]), np.concatenate([[0.0], total.values]))


def read_runs(paths: Sequence[Path]) -> list[RunRecord]:
    """The runs of run directories, and of all run directories below others, such as a sweep's.

    Raises:
        ConfigError: a path is not a directory, or there is no run below it, or no run has a curve.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"{path} is not a directory: give a run's, or one that holds runs, such as a sweep's")
        below = sorted(run_directories(path), key=lambda each: natural_order(str(each)))
        if not below:
            raise ConfigError(
                f"no runs below {path}: `lightning-rl train` writes them, `lightning-rl list runs` names them"
            )
        found.update((each.resolve(), each) for each in below)
    runs = [read_run(directory) for directory in found.values()]
    if not any(run.has_return for run in runs):
        states = ", ".join(f"{run.directory} ({run.state})" for run in runs[:3])
        raise ConfigError(
            f"no run has a return yet, in {METRICS_FILE} or tb/: {states}; wait for its first episodes (with "
            "logger=none there are no curves, and with env=none no returns but those of evaluation.estimators)"
        )
    return runs


def natural_order(text: str) -> list[tuple[bool, int, str]]:
    """A sort key by which "2_ppo" comes before "10_ppo"."""
    parts = re.split(r"(\d+)", text)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def read_run(directory: Path) -> RunRecord:
    """Read one run.

    Raises:
        ConfigError: its config.yaml is damaged.
    """
    status = read_status_or_empty(directory / STATUS_FILE)
    return RunRecord(
        directory=directory,
        config=read_config(directory) if os.path.lexists(directory / CONFIG_FILE) else {},
        overrides=read_overrides(directory),
        status=status,
        state=state_of(directory, status),
        curves=read_curves(directory),
        sessions=read_provenance(directory),
    )


def read_curves(directory: Path) -> dict[str, Series]:
    """All metrics of a run; empty if it has written none."""
    file = directory / METRICS_FILE
    if is_regular(file) and (curves := in_order(points_of_csv(file))):
        return curves
    found = sorted((directory / "tb").glob("events.out.tfevents.*"))
    events = [event_file for event_file in found if is_regular(event_file, directory)]
    return in_order(point for event_file in events for point in points_of_events(event_file)) if events else {}


def in_order(points: Iterator[tuple[str, int, float] | tuple[None, int, float]]) -> dict[str, Series]:
    """Series from points (metric, env steps, value) in the order of the file.

    A point without a metric says that everything from its env steps on is logged again, as a resumed run does.
    """
    found: dict[str, dict[int, float]] = {}
    for metric, step, value in points:
        if metric is None:
            found = {name: {at: each for at, each in known.items() if at < step} for name, known in found.items()}
        else:
            found.setdefault(metric, {})[step] = value
    ordered = {name: zip(*sorted(known.items()), strict=True) for name, known in found.items() if known}
    return {
        name: Series(np.array(steps, np.int64), np.array(values, np.float64))
        for name, (steps, values) in ordered.items()
    }


def points_of_events(file: Path) -> Iterator[tuple[str, int, float] | tuple[None, int, float]]:
    """The scalars of a TensorBoard event file, up to where it is damaged or still being written."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    from tensorboard.compat.proto.event_pb2 import SessionLog  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.compat.tensorflow_stub.errors import DataLossError

    try:
        for event in LegacyEventFileLoader(str(file)).Load():
            if event.HasField("session_log") and event.session_log.status == SessionLog.START:
                yield None, int(event.step), 0.0
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    yield value.tag, int(event.step), float(value.simple_value)
    except DataLossError:
        return
