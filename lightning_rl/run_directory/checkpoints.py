"""Finds the checkpoint files of a run directory, and the one that a command uses."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lightning_rl.errors import CheckpointError, SaveError, UntrustedError
from lightning_rl.run_directory.config_file import read_config
from lightning_rl.run_directory.regular_files import is_regular

__all__ = ["BEST_FILE", "checkpoint_of", "has_checkpoint", "naming_others"]

BEST_FILE = re.compile(r"best_(\d+)_(-?\d+\.\d+)\.ckpt")
"""Pattern of best files: env steps, and the monitored value."""


def has_checkpoint(run_dir: Path) -> bool:
    """Whether a run's directory contains a checkpoint file, complete or not."""
    return any(is_regular(file, run_dir) for file in (run_dir / "checkpoints").glob("*.ckpt"))


def checkpoint_of(run_dir: Path, *, best: bool = False, how: str = "its path") -> Path:
    """The checkpoint of a run if no file is named: last.ckpt, or the best one.

    Args:
        run_dir: the directory of the run.
        best: the file with the best value in its name, by `checkpoint.mode`.
        how: option by which a command takes another file, for messages.

    Raises:
        CheckpointError: `best` is set, and the run has kept no best file.
    """
    directory = run_dir / "checkpoints"
    if not best:
        return directory / "last.ckpt"
    files = [path for path in sorted(directory.glob("best_*.ckpt")) if is_regular(path, run_dir)]
    values = {path: float(match[2]) for path in files if (match := BEST_FILE.fullmatch(path.name))}
    if not values:
        raise CheckpointError(
            f"{directory} holds no best_*.ckpt: nothing was evaluated, or checkpoint.keep=0."
            f"{others(directory, how=how)}"
        )
    section = read_config(run_dir)["checkpoint"]
    lowest = isinstance(section, dict) and section.get("mode") == "min"
    return (min if lowest else max)(values, key=lambda path: values[path])


@contextmanager
def naming_others(file: Path, how: str) -> Iterator[None]:
    """Context that adds the other checkpoint files of the run to an error about one of them.

    Args:
        file: the file that is read inside; nothing is added if it is not in a run's checkpoint directory.
        how: option by which a command takes another file.
    """
    try:
        yield
    except CheckpointError as error:
        if isinstance(error, SaveError | UntrustedError) or file.absolute().parent.name != "checkpoints":
            raise
        raise CheckpointError(f"{error}.{others(file.parent, without=file.name, how=how)}") from error


def others(directory: Path, how: str, without: str = "") -> str:
    """A sentence that lists the checkpoint files in a directory, newest first, and the option to choose one."""
    files = [path for path in directory.glob("*.ckpt") if path.name != without and is_regular(path, directory.parent)]
    files.sort(key=os.path.getmtime)
    if not files:
        return f" {directory} holds no other checkpoint"
    best = " (or --best)" if any(BEST_FILE.fullmatch(path.name) for path in files) else ""
    return f" {directory} holds {', '.join(path.name for path in reversed(files))}: give {how}{best}"
