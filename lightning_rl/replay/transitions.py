"""Assembles training rows from stored steps: n-step returns, and the observations to bootstrap from."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_rl.replay.ring import ENDED, MASKED, ROW, SAMPLEABLE, TERMINATED, Ring
from lightning_rl.sample_batch import STEP_INPUTS, SampleBatch, map_leaves

__all__ = ["OF_STEPS", "add_columns", "discounted_sums", "n_step_returns", "run_lengths", "runs", "transitions"]

OF_STEPS = ("step_rewards", "step_next_obs")
"""Columns of rows with n-step returns: the single rewards `[N, n]`, 0 after the last one; and the observation one step
later, where "next_obs" is the observation n steps later."""


def transitions(ring: Ring, slots: np.ndarray, powers: np.ndarray, of_steps: Collection[str] = ()) -> SampleBatch:
    """The rows of a training batch for `slots [N]`, all of which can be drawn.

    Args:
        ring: ring with the rows.
        slots: int64 `[N]`.
        powers: γ⁰ … γⁿ; n is the number of rewards in a sum.
        of_steps: columns of `OF_STEPS` to add, if n > 1; and "next_actions", taken with "next_obs", if they are to be
            added (0 where no step is stored after it).
    """
    columns = ring.columns
    if len(powers) == 2:
        last, flags = slots, ring.flags.take(slots)
        obs, next_obs = columns.read_pair("obs", slots)
        returns = {
            "rewards": torch.from_numpy(columns.array("rewards").take(slots)),
            "discounts": torch.from_numpy(np.full(len(slots), powers[1], np.float32)),
            "terminated": _terminated(flags),
        }
    else:
        returns, more = n_step_returns(ring, slots, powers, of_steps)
        last = ring.after(slots, more)
        next_obs = columns.read("obs", ring.after(last))
        if "step_next_obs" in of_steps:
            obs, returns["step_next_obs"] = columns.read_pair("obs", slots)
        else:
            obs = columns.read("obs", slots)
    batch = {"obs": obs, "next_obs": next_obs, **returns, "batch_indexes": torch.from_numpy(ring.ids(slots))}
    if "next_actions" in of_steps:
        following = ring.after(last)
        taken = torch.from_numpy((ring.flags.take(following) & ROW) != 0)
        batch["next_actions"] = map_leaves(
            lambda actions: actions * taken.reshape(-1, *[1] * (actions.ndim - 1)), columns.read("actions", following)
        )
    add_columns(batch, ring, slots, last)
    return SampleBatch(batch)


def add_columns(batch: dict[str, Any], ring: Ring, slots: np.ndarray, last: np.ndarray) -> None:
    """Add the other stored columns of `slots [N]`; `STEP_INPUTS` and masks also of the rows after `last [N]`."""
    columns = ring.columns
    for name in columns:
        if name not in batch and name != "priorities":
            batch[name] = columns.read(name, slots)
            if name in STEP_INPUTS:
                batch[f"next_{name}"] = columns.read(name, ring.after(last))
    if ring.masked:
        following = ring.after(last)
        masks = columns.array("action_mask").take(following, axis=0)
        masks[(ring.flags.take(following) & MASKED) == 0] = True  # after a terminated step, which has no next mask
        batch["next_action_mask"] = torch.from_numpy(masks)


def n_step_returns(
    ring: Ring, slots: np.ndarray, powers: np.ndarray, of_steps: Collection[str], most: np.ndarray | None = None
) -> tuple[dict[str, Any], np.ndarray]:
    """The columns of n-step returns, which sum up to n rows, but none after an episode's end or the newest row.

    Args:
        ring, slots, powers, of_steps: see `transitions`.
        most: int `[N]`, upper bound on the number of rows, for each.

    Returns:
        "rewards", "terminated" and "discounts", which are γ to the number of rows summed; "intrinsic_rewards" if they
        are stored; "step_rewards" if asked for. And the number of rows summed, less one, `[N]`.
    """
    columns = ring.columns
    window, flags, inside = runs(ring, slots, len(powers) - 1)
    if most is not None:
        inside &= np.arange(len(powers) - 1) < most[:, None]
    more = inside.sum(1) - 1
    rewards = columns.array("rewards").take(window, mode="wrap") * inside  # 0 after the last
    batch = {
        "rewards": discounted_sums(rewards, powers),
        "discounts": torch.from_numpy(powers.take(more + 1).astype(np.float32)),
        "terminated": _terminated(_at(flags, more)),
    }
    if "step_rewards" in of_steps:
        batch["step_rewards"] = torch.from_numpy(rewards)
    if "intrinsic_rewards" in columns:
        paid = columns.array("intrinsic_rewards").take(window, mode="wrap") * inside
        batch["intrinsic_rewards"] = discounted_sums(paid, powers)
    return batch, more


def discounted_sums(each: np.ndarray, powers: np.ndarray) -> Tensor:
    """Σ γⁱ xᵢ of numbers `[N, n]`, float32 `[N]`; `powers` as for `transitions`."""
    return torch.from_numpy((each @ powers[:-1]).astype(np.float32))


def run_lengths(ring: Ring, slots: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Number of stored rows of its episode from each row on, up to `most` (int `[N]`); and whether that is final.

    A run is final if it has `most` rows, if its episode has ended, or if a discontinuity follows it.
    """
    _, flags, inside = runs(ring, slots, most)
    length = inside.sum(1)
    ended = (_at(flags, length - 1) & ENDED) != 0
    position = ring.positions(slots)
    # The last row, right before the head, may wait for the mask of the next observation.
    at_head = position + length >= ring.heads[slots % ring.num_envs] - ring.masked
    return length, (length == most) | ended | ~at_head


def runs(ring: Ring, slots: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The `most` slots from each slot on, their flags, and whether they belong to the same episode, all `[N, most]`."""
    window = slots[:, None] + np.arange(most) * ring.num_envs
    flags = ring.flags.take(window, mode="wrap")
    inside = np.ones(window.shape, bool)
    # After an end or a discontinuity comes a slot without a step.
    np.greater_equal(flags[:, 1:], SAMPLEABLE, out=inside[:, 1:])
    np.logical_and.accumulate(inside, axis=1, out=inside)
    return window, flags, inside


def _terminated(flags: np.ndarray) -> Tensor:
    """Whether steps with these flags terminated; the flag is bit 0."""
    return torch.from_numpy((flags & TERMINATED).view(np.bool_))


def _at(table: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Entry `column[i]` of row i."""
    return table.ravel().take(np.arange(len(column)) * table.shape[1] + column)
