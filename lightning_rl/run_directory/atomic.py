"""Writes files atomically: after a crash, a kill or a full disk, a file has its old or its complete new content."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from lightning_rl.errors import ConfigError, SaveError

__all__ = [
    "check_writable",
    "duplicate",
    "nearest_existing",
    "remove_staging",
    "save_text",
    "why_not_writable",
    "write_atomically",
]

STAGING = ".staging"
NOT_DISKS = (("/", "proc"), ("/", "sys"))
LONGEST_NAME = 255  # largest number of bytes in a directory's name


def why_not_writable(directory: str | Path) -> str:
    """Say why nothing can be written into a directory, which need not be there yet; "" if it can be."""
    try:
        path = Path(directory).absolute()
        nearest = nearest_existing(path)
        if not nearest.is_dir():
            return f"{str(nearest)!r} is a file"
        if not os.access(nearest, os.W_OK) or nearest.parts[:2] in NOT_DISKS:
            return f"nothing can be made in {str(nearest)!r}"
        return "the name is too long" if len(os.fsencode(path.name)) > LONGEST_NAME else ""
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)


def check_writable(place: str, directory: str | Path) -> None:
    """Check that files can be written into a directory, which need not be there yet.

    Args:
        place: what is to be written, for the message: "logger path='x'".
        directory: the directory.

    Raises:
        ConfigError: nothing can be.
    """
    if why := why_not_writable(directory):
        raise ConfigError(f"{place} cannot be written: {why}")


def nearest_existing(path: Path) -> Path:
    """An absolute path itself if it exists, else the innermost of its parents that does."""
    return next(each for each in (path, *path.parents) if each.exists())


def write_atomically(path: Path, content: bytes | Callable[[BinaryIO], None], *, durable: bool = True) -> None:
    """Write `content` to `path` so that readers see the old file or the complete new one.

    Args:
        path: path of the file; its directory is created if needed.
        content: all bytes, or a function that writes them to a file.
        durable: also survive a power cut (syncs file and directory, some milliseconds).

    Raises:
        OSError: the content could not be written; `path` is untouched.
    """

    def write(staging: Path) -> None:
        with staging.open("wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())

    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, write)
    if durable:
        _sync_directory(path.parent)


def save_text(file: Path, text: str) -> None:
    """Write a text atomically, and durably.

    Raises:
        SaveError: it could not be written.
    """
    try:
        write_atomically(file, text.encode())
    except OSError as error:
        raise SaveError(f"{file} could not be written ({error.strerror or error}): free some space there") from error


def duplicate(source: Path, target: Path) -> None:
    """Give the file `source` a second name, as a hard link if the file system supports that, else as a copy.

    Sharing is safe because checkpoint files are replaced, never written into.

    Raises:
        OSError: the file could not be linked or copied; an existing `target` is untouched.
    """

    def link_or_copy(staging: Path) -> None:
        try:
            os.link(source, staging)
        except OSError:  # no hard links on this file system
            shutil.copyfile(source, staging)
            with staging.open("rb+") as file:
                os.fsync(file.fileno())

    _replace(target, link_or_copy)
    _sync_directory(target.parent)


def remove_staging(directory: Path) -> None:
    """Delete temporary files of a process that was killed while writing."""
    for leftover in directory.glob(f".*{STAGING}"):
        leftover.unlink(missing_ok=True)


def _replace(path: Path, make: Callable[[Path], None]) -> None:
    # In the same directory: os.replace is atomic only within one file system. Two threads have two names.
    staging = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}{STAGING}")
    try:
        staging.unlink(missing_ok=True)
        make(staging)
        os.replace(staging, path)
    finally:
        staging.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
