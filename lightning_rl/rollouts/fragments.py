"""Rollout fragments in one form, whatever autoreset mode the vector environment has.

A fragment is `[T+1, B, …]` for what a policy reads before a step (`STEP_INPUTS`: the observation, …) and `[T, B, …]`
for everything else, with NEXT_STEP rows: the row after an episode's end is the reset. It is not experience
(`valid=False`), and its observation is the final one of the episode, so `values[1:]` is V(next) everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_rl.sample_batch import Fragment, SampleBatch, map_leaves, to_nested_batch

__all__ = [
    "EnvSteps",
    "concat_steps",
    "copy_arrays",
    "describe_not_finite",
    "insert_final_obs",
    "insert_reset_rows",
    "is_finite",
    "stack_masks",
    "stack_steps",
    "step_inputs",
    "write_final_masks",
    "write_row",
    "zip_leaves",
]


@dataclass(frozen=True, slots=True)
class EnvSteps:
    """What the environments gave in the steps of a fragment, `[T, B]` each.

    Attributes:
        rewards: as the environments gave them.
        terminated, truncated: bool.
        active: bool, whether the environment had not yet waited for the others' episodes to end.
        experience: bool, whether the row is not a reset.
        t: int32, the step within its episode.
    """

    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    active: np.ndarray
    experience: np.ndarray
    t: np.ndarray


def copy_arrays(value: Any) -> Any:
    """A copy of a (nested) observation as arrays, because the environment may overwrite its own arrays.

    In C order, whatever the environment's own is: sums over an array in another order round differently.
    """
    return map_leaves(partial(np.array, order="C"), value)


def stack_steps(steps: Sequence[Any]) -> Any:
    """`T` (nested) arrays or tensors of `[B, …]` as one of `[T, B, …]`, on the CPU."""
    first = steps[0]
    if isinstance(first, SampleBatch):
        return SampleBatch({name: stack_steps([step[name] for step in steps]) for name in first})
    if isinstance(first, Tensor):
        return (torch.stack(list(steps)) if len(steps) > 1 else first.unsqueeze(0)).cpu()
    if isinstance(first, dict | tuple):
        return stack_steps([to_nested_batch(step) for step in steps])
    return torch.from_numpy(concat_steps(steps))


def concat_steps(steps: Sequence[np.ndarray]) -> np.ndarray:
    """`T` arrays of `[B, …]` as one of `[T, B, …]`; of one step a view."""
    # Not np.stack, which makes a view of each step first and costs three times as much.
    return np.concatenate(steps).reshape(len(steps), *steps[0].shape) if len(steps) > 1 else steps[0][None]


def stack_masks(masks: Sequence[np.ndarray], steps: int) -> Tensor:
    """The masks `[B, n]` of the last of `steps` steps as `[T, B, n]`; in those before everything was allowed."""
    missing = [np.ones_like(masks[0])] * (steps - len(masks))
    return torch.from_numpy(concat_steps([*missing, *masks]))


def insert_reset_rows(fragment: Fragment, following: SampleBatch) -> Fragment:
    """Bring SAME_STEP rows into the common form: a reset row follows each end, in that environment's column.

    Columns of environments with fewer ends are padded with `valid=False` rows at the bottom.

    Args:
        fragment: `[T, B, …]`, every row experience.
        following: its `STEP_INPUTS` after each step, `[T, B, …]`: where an episode ended, the final observation and
            the other inputs of the policy with it.

    Returns:
        The same transitions with `L ≥ T` rows, `L + 1` of the step inputs.
    """
    ended = fragment.terminated | fragment.truncated
    steps, num_envs = ended.shape
    ends_before = ended.long().cumsum(0) - ended.long()
    rows = torch.arange(steps).unsqueeze(1) + ends_before  # [T, B], where each step goes
    length = int(rows[-1].max()) + 1
    envs = torch.arange(num_envs)

    def insert_rows(column: Tensor) -> Tensor:
        out = column.new_zeros((length, *column.shape[1:]))
        out[rows, envs] = column
        return out

    def insert_input_rows(column: Tensor, after: Tensor) -> Tensor:
        out = column.new_zeros((length + 1, *column.shape[1:]))
        out[rows, envs] = column
        out[rows + 1, envs] = after
        for env, last in enumerate((rows[-1] + 1).tolist()):
            out[last:, env] = out[last, env].clone()  # padding repeats the last row, so that networks get real values
        return out

    fragment_out = fragment.without(*following.columns).map(insert_rows)
    for name, after in following.items():
        fragment_out[name] = zip_leaves(insert_input_rows, fragment[name], after)
    return fragment_out


def write_final_masks(fragment: SampleBatch, before: SampleBatch, masks: Tensor) -> None:
    """Write the masks of final observations into the reset rows of a fragment, which NEXT_STEP modes record there.

    Args:
        fragment: a result of `insert_reset_rows`, `[L, B, …]`; its "action_mask" is changed.
        before: the fragment without reset rows, `[T, B, …]`.
        masks: bool `[T, B, n]`, of the final observation after each step that ended an episode.
    """
    ended, ended_before = ((each.terminated | each.truncated).T for each in (fragment, before))
    env, row = ended.nonzero(as_tuple=True)
    inside = row + 1 < ended.shape[1]
    fragment.action_mask[row[inside] + 1, env[inside]] = masks.transpose(0, 1)[ended_before][inside]


def insert_final_obs(next_obs: Any, info: dict[str, Any]) -> Any:
    """SAME_STEP: the observations after a step; where an episode ended, its final observation."""
    if "final_obs" in info:
        for index in np.flatnonzero(info["_final_obs"]).tolist():
            write_row(next_obs, index, info["final_obs"][index])
    return next_obs


def write_row(arrays: Any, index: int, row: Any) -> None:
    """Write a row of (nested) arrays."""

    def write(column: np.ndarray, part: Any) -> None:
        column[index] = part

    zip_leaves(write, arrays, row)


def describe_not_finite(fragment: SampleBatch, rewards: np.ndarray, name_lane: Callable[[int], str]) -> str:
    """A message on the first NaN or infinite reward or observation of a fragment; "" if all are finite.

    Args:
        fragment: `[T, L, …]`.
        rewards: `[T, L]`, also of rows that are not experience.
        name_lane: names an index along `L`.
    """
    if not math.isfinite(rewards.sum()) and len(bad := np.argwhere(~np.isfinite(rewards))):
        step, lane = bad[0].tolist()
        after = _after(fragment["actions"], step, lane)
        return f"reward of {name_lane(lane)}, row {step} is {rewards[step, lane]}{after}"
    return _describe_not_finite_obs("obs", fragment["obs"], fragment["actions"], name_lane)


def _after(actions: Any, step: int, lane: int) -> str:
    """The action before a step, for a message; "" if it is nested or lies before the fragment."""
    return f", after action {actions[step, lane].tolist()}" if isinstance(actions, Tensor) and step >= 0 else ""


def _describe_not_finite_obs(name: str, column: Any, actions: Any, name_lane: Callable[[int], str]) -> str:
    """A message on the first NaN or infinite value of (nested) observations `[T, L, *]`; "" if all are finite."""
    if isinstance(column, SampleBatch):
        found = (
            _describe_not_finite_obs(f"{name}.{child}", part, actions, name_lane) for child, part in column.items()
        )
        return next((problem for problem in found if problem), "")
    # A sum is finite only if all numbers are, and costs a quarter of a check of each number.
    if not column.is_floating_point() or math.isfinite(column.sum().item()) or bool(torch.isfinite(column).all()):
        return ""
    step, lane, *place = torch.nonzero(~torch.isfinite(column))[0].tolist()
    value = float(column[tuple([step, lane, *place])])
    after = _after(actions, step - 1, lane)
    return f"observation {name!r} of {name_lane(lane)}, row {step} is {value} at index {place}{after}"


def is_finite(obs: Any) -> bool:
    """Whether all numbers of one step's (nested) observations `[B, *]` are finite."""
    if isinstance(obs, dict | tuple):
        return all(map(is_finite, obs.values() if isinstance(obs, dict) else obs))
    array = np.asarray(obs)
    if array.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):  # of the sum: finite numbers may be as large as there are
        return math.isfinite(array.sum()) or bool(np.isfinite(array).all())


def zip_leaves(fn: Callable[[Any, Any], Any], first: Any, second: Any) -> Any:
    """`fn` of every two arrays of two batches, observations or actions that are nested alike."""
    if isinstance(first, SampleBatch):
        return SampleBatch({name: zip_leaves(fn, first[name], second[name]) for name in first})
    if isinstance(first, dict):
        return {name: zip_leaves(fn, child, second[name]) for name, child in first.items()}
    if isinstance(first, tuple):
        return tuple(zip_leaves(fn, *pair) for pair in zip(first, second, strict=True))
    return fn(first, second)


def step_inputs(obs: list[Any], memory: list[SampleBatch]) -> SampleBatch:
    """The inputs of the policy before each step, `[T, B, …]`.

    Args:
        obs, memory: the observation and memory of each step; `memory` is empty for a model without memory.
    """
    columns = dict(stack_steps(memory).items()) if memory else {}
    return SampleBatch({"obs": stack_steps(obs), **columns})
