"""The work of the replay comparison: the same rows, the same batches and the same clock for every side.

Rows come from 8 environments and are inserted in blocks of 8 steps. Vectors are 4 float32 numbers, images 4 stacked
frames of 84 × 84 uint8: each step brings a new one, and an episode begins with its first frame four times. An episode
lasts 200 steps.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Protocol

import numpy as np
import torch

BATCH, ENVS, STEPS, EPISODE = 256, 8, 8, 200
BLOCK = ENVS * STEPS
ALPHA, BETA = 0.6, 0.4
PIECE = 0.002  # seconds that a timed piece lasts

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Kind:
    """What a row's observation is, and how many rows the buffer holds."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    capacity: int


class Buffer(Protocol):
    """What each side implements around its buffer."""

    def add(self, block: Any) -> None:
        """Insert a block as its documentation says how."""

    def sample(self) -> Any:
        """A batch of `BATCH` rows; with their weights where the buffer is prioritized."""

    def update(self, batch: Any, errors: np.ndarray) -> None:
        """Give the rows of `batch` the TD `errors`."""


def fragments(kind: Kind) -> list[Columns]:
    """A stream that fits onto its own beginning: an episode's steps, and the row that resets (not valid), in each env.

    "obs" is `[T+1, ENVS, *shape]`, all else `[T, ENVS]`; every fragment has `STEPS` rows but the last, which has one
    more, so that all together have `BLOCK` valid rows on average.
    """
    rng = np.random.default_rng(0)
    rows = np.arange(EPISODE + 2)[:, None]
    phase = (rows + np.arange(ENVS) * (EPISODE // ENVS)) % (EPISODE + 1)
    frames = kind.shape[0] if len(kind.shape) == 3 else 1
    seen = np.maximum(rows - phase, rows - np.arange(frames)[::-1, None, None]) % (EPISODE + 1)
    shape = kind.shape[1:] if len(kind.shape) == 3 else kind.shape
    pixels = np.dtype(kind.dtype) == np.uint8
    source = rng.integers(0, 256, (EPISODE + 1, ENVS, *shape)) if pixels else rng.random((EPISODE + 1, ENVS, *shape))
    stacked = source.astype(kind.dtype)[seen, np.arange(ENVS)]  # [frames, rows, ENVS, *shape]
    obs = np.moveaxis(stacked, 0, 2).reshape(*phase.shape, *kind.shape)
    columns = {
        "actions": rng.integers(0, 4, phase.shape),
        "rewards": rng.standard_normal(phase.shape).astype(np.float32),
        "terminated": phase == EPISODE - 1,
        "truncated": np.zeros(phase.shape, bool),
        "valid": phase < EPISODE,
        "t": (phase % EPISODE).astype(np.int32),
    }
    starts = range(0, EPISODE, STEPS)
    stops = [*starts[1:], EPISODE + 1]
    return [
        {"obs": obs[start : stop + 1].copy()} | {name: column[start:stop].copy() for name, column in columns.items()}
        for start, stop in zip(starts, stops, strict=True)
    ]


def blocks(kind: Kind) -> list[Columns]:
    """The same steps as rows `[STEPS, ENVS, …]` with their next observation."""
    whole = {name: np.concatenate([f[name][: len(f["valid"])] for f in fragments(kind)]) for name in ROW_COLUMNS}
    last = fragments(kind)[-1]["obs"][-1:]
    whole["next_obs"] = np.concatenate([whole["obs"][1:], last])
    steps = np.argsort(~whole.pop("valid"), axis=0, kind="stable")[:EPISODE]  # of each environment, without the reset
    whole = {name: column[steps, np.arange(ENVS)] for name, column in whole.items()}
    return [
        {name: column[start : start + STEPS].copy() for name, column in whole.items()}
        for start in range(0, EPISODE, STEPS)
    ]


ROW_COLUMNS = ("obs", "actions", "rewards", "terminated", "valid")


def rows_of(block: Columns) -> Columns:
    """`[STEPS, ENVS, …]` as rows `[BLOCK, …]`; views."""
    return {name: column.reshape(BLOCK, *column.shape[2:]) for name, column in block.items()}


def rate(step: Callable[[], object], seconds: float) -> float:
    """Calls a second, over `seconds`: that of the fastest tenth of pieces, so that other work on the machine is out."""
    start = time.perf_counter()
    calls = 0
    while calls < 2 or time.perf_counter() - start < PIECE:  # a warm-up that also says how many
        step()
        calls += 1
    rates = []
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or len(rates) < 10:
        start = time.perf_counter()
        for _ in range(calls):
            step()
        rates.append(calls / (time.perf_counter() - start))
    return sorted(rates)[-(len(rates) // 10) - 1]


def measure(
    make: Callable[[Kind, bool], Buffer | None],
    source: Callable[[Kind], list[Any]],
    fill: Callable[[Any, Kind], None] | None = None,
) -> None:
    """Measure what the command line asks for, and print it as a JSON object.

    Args:
        make: a buffer of a kind, prioritized or not; `None` where the side has none.
        source: the blocks in the form that its `add` takes.
        fill: how a buffer gets full; `None`: block by block.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectors", type=int, default=1_000_000, help="rows of 4 floats")
    parser.add_argument("--images", type=int, default=20_000, help="rows of 84 × 84 × 4 bytes")
    parser.add_argument("--seconds", type=float, default=1.5, help="of each measurement")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--seed", type=int, default=0, help="unused: the data are the same in every round")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    numbers: dict[str, float] = {}
    for kind in (Kind("vectors", (4,), np.float32, args.vectors), Kind("images", (4, 84, 84), np.uint8, args.images)):
        given = source(kind)
        for prioritized in (False, True):
            buffer = make(kind, prioritized) if kind.capacity else None
            if buffer is not None:
                name = f"{kind.name}_{'priority' if prioritized else 'uniform'}"
                numbers |= measured(name, buffer, kind, cycle(given), fill, args.seconds)
            del buffer
    print(json.dumps(numbers))


def measured(
    name: str, buffer: Any, kind: Kind, given: Iterator[Any], fill: Callable[[Any, Kind], None] | None, seconds: float
) -> dict[str, float]:
    """Rows a second inserted and batches a second drawn (and updated, if prioritized), with the buffer full."""
    if fill is None:
        for _ in range(-(-kind.capacity // BLOCK)):
            buffer.add(next(given))
    else:
        fill(buffer, kind)
    errors = cycle(np.abs(np.random.default_rng(2).standard_normal((100, BATCH))).astype(np.float32))

    def draw() -> None:
        batch = buffer.sample()
        if "priority" in name:
            buffer.update(batch, next(errors))

    inserted = rate(lambda: buffer.add(next(given)), seconds) * BLOCK
    for _ in range(300):  # priorities that differ, as they do after a while
        draw()
    return {name: rate(draw, seconds), f"add_{name}": inserted}
