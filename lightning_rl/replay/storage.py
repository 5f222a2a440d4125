"""Allocates a buffer's columns in memory, or in files of a directory that the operating system pages in and out.

Also estimates what a buffer needs from the spaces, so that a buffer that cannot fit is refused before training instead
of being killed hours later.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from lightning_rl.errors import ConfigError, short_repr
from lightning_rl.replay.frames import MOST_FRAMES
from lightning_rl.spaces import leaf_spaces

__all__ = ["Allocate", "Allocator", "available_bytes", "check_fits_memory", "estimated_bytes"]

Allocate = Callable[[tuple[int, ...], Any], np.ndarray]
"""`allocate(shape, dtype)` → an array of zeros."""

ROW_BYTES = 4 + 1  # bytes of the reward, and of the slot's flags
MARGIN = 0.9  # share of the available memory that a buffer may take
SMALL = 2**20  # bytes that are not worth a check


class Allocator:
    """Creates arrays of zeros for a ring, in memory or on a disk.

    The files have no name, so they disappear with the process, and two buffers cannot collide in one directory.

    Args:
        storage: "memory", or the directory of the files.
        capacity: rows of all buffers, for the message if they do not fit.
        parts: number of buffers of this size that share the memory or disk.
    """

    def __init__(self, storage: str, capacity: int | None = None, parts: int = 1) -> None:
        self.storage, self.capacity, self.parts = storage, capacity, parts

    def check(self, needed: int) -> None:
        """Raise an error if there is no room for arrays of that many bytes.

        Memory has to be checked before: the system grants an array at its creation, and fails when it is filled.

        Raises:
            ConfigError: see `check_fits_memory`.
        """
        if needed > SMALL or self.storage != "memory":
            check_fits_memory(needed * self.parts, self.storage, self.capacity)

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Create an array of zeros.

        Raises:
            ConfigError: the disk is too small, or the directory does not allow files.
        """
        if self.storage == "memory":
            return np.zeros(shape, dtype)
        directory = Path(self.storage)
        with _usable(directory):
            directory.mkdir(parents=True, exist_ok=True)
        self.check(math.prod(shape) * np.dtype(dtype).itemsize)
        with _usable(directory), tempfile.TemporaryFile(dir=directory) as file:
            # A plain array over the map: the memmap class adds microseconds to every index operation.
            return np.asarray(np.memmap(file, dtype, "w+", shape=shape)).view(np.ndarray)


def available_bytes(storage: str = "memory") -> int:
    """Free bytes of memory (within the limit of a container), or on the disk of a directory.

    Raises:
        ConfigError: the directory cannot exist.
    """
    if storage != "memory":
        directory = Path(storage)
        with _usable(directory):
            there = next(parent for parent in (directory, *directory.absolute().parents) if parent.exists())
            return shutil.disk_usage(there).free
    free = _memory()
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and (most := limit.read_text().strip()).isdigit():
        free = min(free, int(most) - int(used.read_text()))
    return max(0, free)


def estimated_bytes(
    obs_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    capacity: int,
    *,
    num_envs: int = 1,
    stack_frames: bool = True,
    extra_row_bytes: int = 0,
) -> int:
    """Estimated size of a full `ReplayBuffer`, in bytes.

    Args:
        obs_space, action_space: the spaces of one environment.
        capacity: rows.
        num_envs: number of environments; each needs a few extra slots.
        stack_frames: see `ReplayBuffer`; a uint8 image of 2 to 16 channels (but not of 3) counts as a stack.
        extra_row_bytes: bytes per row of further columns (masks, states).
    """
    row = ROW_BYTES + extra_row_bytes + sum(_leaf_bytes(space) for _, space in leaf_spaces(action_space))
    history = 0
    for _, space in leaf_spaces(obs_space):
        frames = _frames(space) if stack_frames else 1
        row += _leaf_bytes(space) // frames
        history = max(history, frames - 1)
    return row * (-(-capacity // num_envs) + 1 + history) * num_envs


def check_fits_memory(needed: int, storage: str = "memory", capacity: int | None = None) -> None:
    """Raise an error for a buffer that does not fit.

    Args:
        needed: bytes needed (`estimated_bytes`).
        storage: "memory" or a directory.
        capacity: number of rows, for the message.

    Raises:
        ConfigError: more is needed than nine tenths of what is available; names both numbers and what to do.
    """
    free = available_bytes(storage)
    room = int(free * MARGIN)
    if needed <= room:
        return
    place = "memory" if storage == "memory" else f"disk of {storage}"
    lower = "lower data.capacity" if capacity is None else f"lower data.capacity to {capacity * room // needed}"
    remedy = f"{lower}, or keep it on a disk with data.storage=<directory>" if storage == "memory" else lower
    raise ConfigError(
        f"the replay buffer needs {needed / 2**30:.2f} GiB; {free / 2**30:.2f} GiB of {place} are free: {remedy}"
    )


@contextmanager
def _usable(directory: Path) -> Iterator[None]:
    """Turn errors of the operating system about a directory into config errors."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"data.storage={short_repr(str(directory))}: {reason}; expected 'memory' or a directory"
        ) from error


def _memory() -> int:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        if "MemAvailable" in fields:
            return int(fields["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _leaf_bytes(space: spaces.Space[Any]) -> int:
    return math.prod(space.shape or ()) * np.dtype(space.dtype).itemsize


def _frames(space: spaces.Space[Any]) -> int:
    """Number of frames that an observation of this space is assumed to stack; 1: no stack."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) < 3:
        return 1
    for channels in (space.shape[0], space.shape[-1]):
        if channels > 3 and channels % 3 == 0 and channels <= 3 * MOST_FRAMES:
            return channels // 3
        if channels in (2, *range(4, MOST_FRAMES + 1)):
            return channels
    return 1
