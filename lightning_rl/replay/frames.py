"""Stacked images, with each frame stored once: a row's stack consists of the frames up to its own slot.

A wrapper that stacks `K` frames writes every pixel to the buffer `K` times. If the stack of a row is that of the row
before, shifted by one frame, only its newest frame is stored. If it is not (a new episode, a first row), the ring
uses `K − 1` more slots before the row for its older frames, so no padding rule has to be known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["MOST_FRAMES", "Stack", "find_stack"]

MOST_FRAMES = 16  # an image of more channels is not a stack of frames


@dataclass(frozen=True, slots=True)
class Stack:
    """Describes how an observation consists of stacked frames.

    Args:
        frames: number of frames, `K` ≥ 2.
        shape: the shape of an observation.
        last: whether frames are stacked along the last axis (oldest first, as along the first).
    """

    frames: int
    shape: tuple[int, ...]
    last: bool = False

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of a frame, `[c, …]` with `c` channels."""
        first = (self.shape[-1], *self.shape[:-1]) if self.last else self.shape
        return (first[0] // self.frames, *first[1:])

    def split(self, obs: np.ndarray) -> np.ndarray:
        """`[…, *shape]` → a view `[…, K, *frame_shape]`."""
        lead = obs.shape[: obs.ndim - len(self.shape)]
        first = np.moveaxis(obs, -1, len(lead)) if self.last else obs
        return first.reshape(*lead, self.frames, *self.frame_shape)

    def join(self, frames: np.ndarray) -> np.ndarray:
        """`[N, K, *frame_shape]` → `[N, *shape]`; a view if the memory layout allows."""
        first = frames.reshape(len(frames), -1, *frames.shape[3:])
        return np.moveaxis(first, 1, -1) if self.last else first

    def follows(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Whether each stack `after […, *shape]` is `before` shifted by one frame; bool `[…]`."""
        lead = before.shape[: before.ndim - len(self.shape)]
        every = (slice(None),) * len(lead)
        kept = self.split(before)[(*every, slice(1, None))]
        moved = self.split(after)[(*every, slice(None, -1))]
        return (_words(kept.reshape(*lead, -1)) == _words(moved.reshape(*lead, -1))).all(-1)

    def moves(self, obs: np.ndarray) -> np.ndarray:
        """Whether the frames of each stack `[…, *shape]` differ, so that a shift can be detected; bool `[…]`."""
        lead = obs.shape[: obs.ndim - len(self.shape)]
        frames = self.split(obs).reshape(*lead, self.frames, -1)
        return (frames != frames[(..., slice(1), slice(None))]).any((-1, -2))


def find_stack(obs: np.ndarray, valid: np.ndarray) -> Stack | None:
    """The frame stack of a fragment's uint8 images, if every step shifts it by one frame; else `None`.

    Args:
        obs: `[T+1, B, *]`.
        valid: bool `[T, B]`, the steps.
    """
    shape = obs.shape[2:]
    if len(shape) < 3 or obs.dtype != np.uint8:
        return None
    for last, channels in ((False, shape[0]), (True, shape[-1])):
        for count in (channels, channels // 3):
            if 2 <= count <= MOST_FRAMES and channels % count == 0:
                stack = Stack(count, shape, last)
                if stack.follows(obs[:-1], obs[1:])[valid].all():
                    return stack
    return None


def _words(rows: np.ndarray) -> np.ndarray:
    """Rows `[…, K]` as 64-bit words if possible, for an eighth of the comparisons on pixels."""
    whole = rows.shape[-1] and rows.shape[-1] * rows.itemsize % 8 == 0 and rows.strides[-1] == rows.itemsize
    return rows.view(np.uint64) if whole else rows
