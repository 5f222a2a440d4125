"""Which checkpoint files a run directory holds, and which one of them a command means."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lightning_rl.errors import CheckpointError, SaveError, UntrustedError
from lightning_rl.run_directory.config_file import read_config

__all__ = ["BEST_FILE", "checkpoint_of", "has_checkpoint", "naming_others"]

BEST_FILE = re.compile(r"best_(\d+)_(-?\d+\.\d+)\.ckpt")
"""Env steps, and the monitored value; names of files that a run keeps because their policy was among the best."""


def has_checkpoint(run_dir: Path) -> bool:
    """Whether there is a checkpoint file in a run's directory, whole or not."""
    return any((run_dir / "checkpoints").glob("*.ckpt"))


def checkpoint_of(run_dir: Path, *, best: bool = False) -> Path:
    """The checkpoint of a run that is meant where none is named: last.ckpt, or the best one.

    Args:
        run_dir: of the run.
        best: by the value in the file names, the highest or the lowest as `checkpoint.mode` says.

    Raises:
        CheckpointError: the best one is asked for, and the run has kept none.
    """
    directory = run_dir / "checkpoints"
    if not best:
        return directory / "last.ckpt"
    found = {path: BEST_FILE.fullmatch(path.name) for path in sorted(directory.glob("best_*.ckpt"))}
    values = {path: float(match[2]) for path, match in found.items() if match}
    if not values:
        raise CheckpointError(
            f"{directory} holds no best_*.ckpt: nothing was evaluated, or checkpoint.keep=0.{others(directory)}"
        )
    lowest = read_config(run_dir)["checkpoint"]["mode"] == "min"
    return (min if lowest else max)(values, key=lambda path: values[path])


@contextmanager
def naming_others(file: Path, how: str) -> Iterator[None]:
    """Add to an error about a checkpoint file of a run which other files there are.

    Args:
        file: that is read inside; nothing is added where it is not in a run's directory of checkpoints.
        how: another one is named to the command.
    """
    try:
        yield
    except (SaveError, UntrustedError):
        raise
    except CheckpointError as error:
        if file.absolute().parent.name != "checkpoints":
            raise
        raise CheckpointError(f"{error}.{others(file.parent, without=file.name, how=how)}") from error


def others(directory: Path, without: str = "", how: str = "--checkpoint FILE") -> str:
    """A sentence about the checkpoint files in a directory, newest first; how one of them is named to a command."""
    files = sorted((path for path in directory.glob("*.ckpt") if path.name != without), key=os.path.getmtime)
    if not files:
        return f" {directory} holds no other checkpoint"
    best = " (or --best)" if any(path.name.startswith("best_") for path in files) else ""
    return f" {directory} holds {', '.join(path.name for path in reversed(files))}: give {how}{best}"
