"""Rows that know their next observation, as rollout fragments: what a replay ring takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.sample_batch import STEP_INPUTS, SampleBatch

__all__ = ["fragment_of_rows", "steps_of_episodes"]

NEEDED = ("obs", "next_obs", "actions", "rewards", "terminated")
OTHER_NAMES = {"new_obs": "next_obs", "dones": "terminated", "terminateds": "terminated", "truncateds": "truncated"}
DTYPES = {"rewards": np.float32, "terminated": np.bool_, "truncated": np.bool_}


def fragment_of_rows(rows: SampleBatch) -> SampleBatch:
    """Rows `[N, …]` as the fragment `[T, 1, …]` of one environment that took these steps, T ≥ N.

    Where a row does not continue where the one before it stopped, or an episode has ended, a row that is not valid
    comes between them, with the observation that the former led to.

    Args:
        rows: `NEEDED` columns under these names or RLlib's, perhaps "truncated", "t", "priorities" and others, which
            are kept, except for Python objects; rows of an episode in the order of time. If episodes are mixed,
            "eps_id" says which is which.

    Raises:
        ConfigError: a column is missing, or has another number of rows.
    """
    rows = _standard_columns(rows)
    count = len(rows.rewards)
    if "eps_id" in rows:
        order = np.argsort(rows.eps_id, kind="stable")
        if np.count_nonzero(np.diff(rows.eps_id)) > np.count_nonzero(np.diff(rows.eps_id[order])):
            rows = rows.map(lambda column: column[order])
    ended = rows.terminated | rows.truncated
    goes_on = ~ended[:-1] & _equal(rows.next_obs, rows.obs)
    place = np.arange(count)
    place[1:] += np.cumsum(~goes_on)
    length = int(place[-1]) + 1
    valid = np.zeros((length, 1), bool)
    valid[place] = True
    fragment = SampleBatch(valid=torch.from_numpy(valid))
    for name, column in rows.items():
        if name not in (*STEP_INPUTS, "next_obs"):
            fragment[name] = _map_leaves(column, lambda leaf: _place_rows(leaf, place, length))
    fragment["obs"] = _observations(rows.obs, rows.next_obs, place, length + 1)
    return fragment


def steps_of_episodes(fragment: SampleBatch) -> Tensor:
    """For each row of a `fragment_of_rows`, how many of its episode come before it in the fragment, int64 `[T, 1]`."""
    begins = torch.ones_like(fragment.valid)
    begins[1:] = ~fragment.valid[:-1] | fragment.terminated[:-1] | fragment.truncated[:-1]
    row = torch.arange(len(begins)).unsqueeze(1)
    return row - torch.where(begins, row, 0).cummax(0).values


def _standard_columns(rows: SampleBatch) -> SampleBatch:
    """The columns as numpy arrays under the house's names, checked."""
    named = SampleBatch({OTHER_NAMES.get(name, name): column for name, column in rows.numpy().items()})
    missing = [name for name in NEEDED if name not in named]
    if missing or not len(named.rewards):
        lack = f"lack {', '.join(missing)}" if missing else "are none"
        raise ConfigError(f"these rows {lack}; replay needs at least one, with {', '.join(NEEDED)}: {rows}")
    count = len(named.rewards)
    if "truncated" not in named:
        named["truncated"] = np.zeros(count, bool)
    for name, dtype in DTYPES.items():
        named[name] = named[name].astype(dtype, copy=False)
    objects = [name for name, column in named.items() if getattr(column, "dtype", None) == np.dtype(object)]
    kept = named.without("seq_lens", *STEP_INPUTS[1:], *objects)
    for name, column in kept.items():
        if len(column) != count:
            raise ConfigError(f"column {name!r} has {len(column)} rows and 'rewards' {count}: give one for each step")
    return kept


def _equal(next_obs: Any, obs: Any) -> np.ndarray:
    """Whether each row's next observation is the observation of the row after it; bool `[N − 1]`."""
    if isinstance(obs, SampleBatch):
        return np.logical_and.reduce([_equal(next_obs[name], column) for name, column in obs.items()])
    return (next_obs[:-1] == obs[1:]).all(axis=tuple(range(1, obs.ndim)))


def _place_rows(leaf: np.ndarray, place: np.ndarray, length: int) -> Tensor:
    out = np.zeros((length, 1, *leaf.shape[1:]), leaf.dtype)
    out[place, 0] = leaf
    return torch.from_numpy(out)


def _observations(obs: Any, next_obs: Any, place: np.ndarray, length: int) -> Any:
    if isinstance(obs, SampleBatch):
        return SampleBatch({name: _observations(column, next_obs[name], place, length) for name, column in obs.items()})
    out = _place_rows(obs, place, length)
    out.numpy()[place + 1, 0] = next_obs
    out.numpy()[place, 0] = obs
    return out


def _map_leaves(column: Any, fn: Any) -> Any:
    return column.map(fn) if isinstance(column, SampleBatch) else fn(column)
