"""What a learner reads of stored steps: the n-step return, the observation that its value is bootstrapped from."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lightning_rl.data.ring import ENDED, MASKED, SAMPLEABLE, TERMINATED, Ring
from lightning_rl.sample_batch import STEP_INPUTS, SampleBatch

__all__ = ["next_masks", "run_lengths", "runs", "transitions", "windows"]


def transitions(ring: Ring, slots: np.ndarray, powers: np.ndarray) -> SampleBatch:
    """The rows of a training batch for `slots [N]`, which can be drawn.

    Args:
        ring: where they are stored.
        slots: int64 `[N]`.
        powers: γ⁰ … γⁿ; their number says how many rewards are summed.
    """
    columns = ring.columns
    if len(powers) == 2:
        last, flags = slots, ring.flags.take(slots)
        rewards = torch.from_numpy(columns.array("rewards").take(slots))
        discounts = torch.from_numpy(np.full(len(slots), powers[1], np.float32))
        obs, next_obs = columns.read_pair("obs", slots)
    else:
        more, flags, summed, discount = windows(ring, slots, powers)
        last = ring.after(slots, more)
        rewards, discounts = (torch.from_numpy(value.astype(np.float32)) for value in (summed, discount))
        obs, next_obs = columns.read("obs", slots), columns.read("obs", ring.after(last))
    batch: dict[str, Any] = {
        "obs": obs,
        "actions": columns.read("actions", slots),
        "rewards": rewards,
        "next_obs": next_obs,
        "terminated": torch.from_numpy((flags & TERMINATED).view(np.bool_)),  # its flag is bit 0
        "discounts": discounts,
        "batch_indexes": torch.from_numpy(ring.ids(slots)),
    }
    for name in columns:
        if name not in batch and name != "priorities":
            batch[name] = columns.read(name, slots)
            if name in STEP_INPUTS:
                batch[f"next_{name}"] = columns.read(name, ring.after(last))
    if ring.masked:
        batch["next_action_mask"] = torch.from_numpy(next_masks(ring, ring.after(last)))
    return SampleBatch(batch)


def windows(
    ring: Ring, slots: np.ndarray, powers: np.ndarray, most: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The rows that an n-step return sums: up to n, and none behind an episode's end or the newest row.

    Args:
        ring, slots, powers: as for `transitions`.
        most: int `[N]`, fewer rows for some.

    Returns:
        `[N]` each: rows summed less one, the flags of the last, Σ γⁱ rᵢ and γ to their number, in float64.
    """
    window, flags, inside = runs(ring, slots, len(powers) - 1)
    rewards = ring.columns.array("rewards").take(window, mode="wrap")
    if most is not None:
        inside &= np.arange(window.shape[1]) < most[:, None]
    more = inside.sum(1) - 1
    return more, _at(flags, more), (rewards * inside) @ powers[:-1], powers.take(more + 1)


def next_masks(ring: Ring, slots: np.ndarray) -> np.ndarray:
    """Masks of what follows; where nothing does, behind a terminated step, everything is allowed."""
    masks = ring.columns.array("action_mask").take(slots, axis=0)
    masks[(ring.flags.take(slots) & MASKED) == 0] = True
    return masks


def run_lengths(ring: Ring, slots: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """How many rows of its episode are stored from each row on, up to `most` (int `[N]`); and whether no more will be.

    A run is over when it has `most` rows, when its episode has ended, or when the environment was cut behind it.
    """
    _, flags, inside = runs(ring, slots, most)
    length = inside.sum(1)
    ended = (_at(flags, length - 1) & ENDED) != 0
    position = ring.positions(slots)
    # The last row may wait for the mask of the next observation: then it stands right before the head.
    at_head = position + length >= ring.heads[slots % ring.num_envs] - ring.masked
    return length, (length == most) | ended | ~at_head


def runs(ring: Ring, slots: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The `most` slots from each on, their flags, and whether they belong to one run of an episode, all `[N, most]`."""
    window = slots[:, None] + np.arange(most) * ring.num_envs
    flags = ring.flags.take(window, mode="wrap")
    inside = np.ones(window.shape, bool)
    np.greater_equal(flags[:, 1:], SAMPLEABLE, out=inside[:, 1:])  # behind an end or a cut is a slot that is no row
    np.logical_and.accumulate(inside, axis=1, out=inside)
    return window, flags, inside


def _at(table: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Entry `column[i]` of row i."""
    return table.ravel().take(np.arange(len(column)) * table.shape[1] + column)
