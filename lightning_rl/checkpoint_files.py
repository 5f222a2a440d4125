"""Reads checkpoint files: nothing in them is ever run, and damage is found, not loaded."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import torch

from lightning_rl.errors import CheckpointError

__all__ = ["check_whole", "counters_in", "read_file"]


def counters_in(path: str | os.PathLike[str]) -> dict[str, int]:
    """How far the policy in a checkpoint file is: env_steps, iterations, gradient_steps; reads no tensor.

    Raises:
        CheckpointError: the file is missing, damaged or no checkpoint; names file, reason and next step.
    """
    checkpoint = read_file(path, checksums=False)
    counters = checkpoint.get("counters") if isinstance(checkpoint, dict) else None
    if not isinstance(counters, dict) or not isinstance(counters.get("env_steps"), int):
        raise CheckpointError(
            f"checkpoint {path} was not written by lightning_rl: it holds no policy; use RUN_DIR/checkpoints/*.ckpt"
        )
    return counters


def read_file(path: str | os.PathLike[str], *, checksums: bool = True) -> Any:
    """What a checkpoint file holds, on the CPU.

    Tensors are read when they are looked at (a replay buffer need not be in the memory twice), and writing to one does
    not change the file. Whoever keeps one keeps the whole file on the disk.

    Args:
        path: the file.
        checksums: compare them with the content, which reads all of the file.

    Raises:
        CheckpointError: the file is missing, damaged or no checkpoint; names file, reason and next step.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"checkpoint {path} does not exist: pass a file such as RUN_DIR/checkpoints/last.ckpt")
    try:
        if checksums:
            check_whole(path)
        else:
            zipfile.ZipFile(path).close()  # says in few words what is no such file at all
        return _mapped(path)
    except CheckpointError:
        raise
    except Exception as error:  # the unpickler of a damaged file stumbles in many ways, such as an IndexError
        reason = (str(error).splitlines() or [""])[0]
        raise CheckpointError(
            f"checkpoint {path} cannot be read ({type(error).__name__}: {reason}):"
            " it is damaged or not a checkpoint; use another one"
        ) from error


def _mapped(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError:  # a file system that maps no files; what else may be wrong is found again
        return torch.load(path, map_location="cpu", weights_only=True)


def check_whole(path: Path) -> None:
    """Compare the checksums in the file with its content: `torch.load` does not, and takes flipped bits for weights.

    Raises:
        CheckpointError: they differ.
        zipfile.BadZipFile: it is no checkpoint, or not all of one.
    """
    with zipfile.ZipFile(path) as archive:
        # Torch writes no attributes; one that says "directory" would make it read that tensor from unset memory.
        damaged = archive.testzip() or next(
            (entry.filename for entry in archive.infolist() if entry.external_attr), None
        )
    if damaged is not None:
        raise CheckpointError(f"checkpoint {path} is damaged (wrong checksum of {damaged}): use another one")
