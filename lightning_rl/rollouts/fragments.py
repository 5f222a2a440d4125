"""Puts what a vector environment returned into the one form that the rest of the house knows.

A fragment is `obs [T+1, B, *]` and `[T, B, …]` for everything else, with NEXT_STEP rows: the row after an episode's end is the reset, it
is not experience (`valid=False`), and its observation is the final one of the episode, so `values[1:]` is V(next) everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_rl.sample_batch import SampleBatch, nested

__all__ = ["copied", "pad_time", "spread_same_step", "stacked"]


def copied(value: Any) -> Any:
    """A copy of a (nested) observation as arrays; the environment may write into its own ones again."""
    if isinstance(value, dict):
        return {name: copied(child) for name, child in value.items()}
    if isinstance(value, tuple):
        return tuple(copied(child) for child in value)
    return np.array(value)


def stacked(steps: Sequence[Any]) -> Any:
    """`T` (nested) arrays or tensors of `[B, …]` as one of `[T, B, …]`, on the CPU."""
    first = steps[0]
    if isinstance(first, SampleBatch):
        return SampleBatch({name: stacked([step[name] for step in steps]) for name in first})
    if isinstance(first, Tensor):
        return torch.stack(list(steps)).cpu()
    if isinstance(first, dict | tuple):
        return stacked([nested(step) for step in steps])
    return torch.from_numpy(np.stack(list(steps)))


def spread_same_step(fragment: SampleBatch, next_obs: Any) -> SampleBatch:
    """Give SAME_STEP rows the house form: after each end one reset row is put in that environment's column.

    Columns of environments with fewer ends are padded with `valid=False` rows at the bottom.

    Args:
        fragment: `obs [T, B, *]` and `[T, B, …]`, every row experience.
        next_obs: `[T, B, *]`, the observation after each step: the final one where an episode ended.

    Returns:
        The same transitions with `L ≥ T` rows, `obs [L+1, B, *]`.
    """
    ended = fragment.terminated | fragment.truncated
    steps, num_envs = ended.shape
    ends_before = ended.long().cumsum(0) - ended.long()
    rows = torch.arange(steps).unsqueeze(1) + ends_before  # [T, B], where each step goes
    length = int(rows[-1].max()) + 1
    envs = torch.arange(num_envs)

    def spread(column: Tensor) -> Tensor:
        out = column.new_zeros((length, *column.shape[1:]))
        out[rows, envs] = column
        return out

    def spread_obs(obs: Tensor, following: Tensor) -> Tensor:
        out = obs.new_zeros((length + 1, *obs.shape[1:]))
        out[rows, envs] = obs
        out[rows + 1, envs] = following
        for env, last in enumerate((rows[-1] + 1).tolist()):
            out[last:, env] = out[
                last, env
            ].clone()  # padding repeats the last observation: real values for networks to chew on
        return out

    spread_out = fragment.without("obs").map(spread)
    spread_out["obs"] = _zip_map(spread_obs, fragment.obs, next_obs)
    return spread_out


def pad_time(fragment: SampleBatch, length: int) -> SampleBatch:
    """The fragment with `valid=False` rows appended up to `length`, so that fragments of several workers fit side by side."""
    missing = length - len(fragment.rewards)
    if missing == 0:
        return fragment
    padded = fragment.without("obs").map(
        lambda column: torch.cat([column, column.new_zeros((missing, *column.shape[1:]))])
    )
    obs = fragment["obs"]
    repeat = lambda column: torch.cat([column, column[-1:].expand(missing, *column.shape[1:])])  # noqa: E731
    padded["obs"] = obs.map(repeat) if isinstance(obs, SampleBatch) else repeat(obs)
    return padded


def _zip_map(fn: Any, first: Any, second: Any) -> Any:
    if isinstance(first, SampleBatch):
        return SampleBatch({name: _zip_map(fn, first[name], second[name]) for name in first})
    return fn(first, second)
