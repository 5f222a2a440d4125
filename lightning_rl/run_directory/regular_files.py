"""Opens the files of a run directory, which may come from anybody: regular files, reached through no link below it.

A link could lead to any file of the machine, and a FIFO or a device such as /dev/zero would be read without end. The
run directory itself may be a link, such as a user's own runs/latest.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from lightning_rl.errors import ConfigError

__all__ = ["is_regular", "open_regular", "read_text", "refuse_links"]

# What a run and the commands on it write in its directory, and not by replacing a file.
WRITTEN = ("checkpoints", "tb", "videos", "export", ".hydra", "wandb", "metrics.csv", "train.log", "output.log")
REASON = "it is not a regular file, or a link leads to it, which is not followed in a run directory"


def is_regular(file: Path, below: Path | None = None) -> bool:
    """Whether there is a regular file, and no link on the way.

    Args:
        file: the file.
        below: the directory from which on no link is followed; `None`: that of the file.
    """
    inner = file.relative_to(file.parent if below is None else below).parts
    places = [file.parents[depth] for depth in range(len(inner) - 1)]
    try:
        return stat.S_ISREG(file.lstat().st_mode) and not any(place.is_symlink() for place in places)
    except (OSError, ValueError):  # there is nothing, or the name cannot be one
        return False


def open_regular(file: Path, below: Path | None = None, *, append: bool = False) -> BinaryIO:
    """Open a file to read it, or to write at its end.

    Args:
        file, below: see `is_regular`.
        append: write at its end; it is made if it is not there.

    Raises:
        OSError: it is not there, or no regular file, or behind a link.
    """
    if os.path.lexists(file) and not is_regular(file, below):
        raise OSError(errno.EINVAL, REASON, str(file))
    # Without following or waiting, should another process have replaced it meanwhile.
    how = os.O_WRONLY | os.O_APPEND | os.O_CREAT if append else os.O_RDONLY
    descriptor = os.open(file, how | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, REASON, str(file))
    return os.fdopen(descriptor, "ab" if append else "rb")


def read_text(file: Path, below: Path | None = None, *, most: int | None = None, errors: str = "strict") -> str:
    """The text of a file.

    Args:
        file, below: see `is_regular`.
        most: largest number of bytes; `None`: any.
        errors: how bytes that are not UTF-8 are read, as by `bytes.decode`.

    Raises:
        OSError: see `open_regular`.
        ValueError: it has more bytes, or is not UTF-8.
    """
    with open_regular(file, below) as opened:
        if most is not None and (size := os.fstat(opened.fileno()).st_size) > most:
            raise ValueError(f"it has {size} bytes")
        return opened.read().decode("utf-8", errors)


def refuse_links(run_dir: Path) -> None:
    """Refuse a run directory in which a run would write through a link, or to a device.

    Raises:
        ConfigError: names the place.
    """
    for place in (run_dir / name for name in WRITTEN):
        if os.path.islink(place) or (os.path.exists(place) and not (os.path.isdir(place) or os.path.isfile(place))):
            raise ConfigError(
                f"{place} is a link, or no regular file, and a run writes nothing outside of its directory: put the "
                "files themselves there, or move the whole directory and make that the link"
            )
