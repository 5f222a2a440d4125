"""RLlib's view requirements: further inputs of models and columns of training batches, shifted in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.rllib.sample_batch import OWN_NAMES
from lightning_rl.sample_batch import SampleBatch, map_leaves, to_nested_batch

__all__ = ["EARLIER", "ViewRequirement", "add_views", "default_requirements", "derived_inputs", "earlier_steps"]

EARLIER = {"obs": "prev_obs", "actions": "prev_actions", "rewards": "prev_rewards"}
"""Columns of which workers keep earlier steps, and the columns of those."""


@dataclass(slots=True)
class ViewRequirement:
    """A column as a view of another one, at other steps of the same episode; zeros where the episode has no such step.

    Attributes:
        data_col: the column that is viewed; `None`: the one that the requirement belongs to.
        space: of one entry; not read.
        shift: 0 is the row's own step, −1 the one before, 1 the next one; "-3:0" is a window `[N, 4, *]` with both
            ends, "-4:0:2" one with every other step, and a list names the steps one by one.
        index: not read.
        batch_repeat_value: can only be 1: each row has its own view.
        used_for_compute_actions: whether the model's `forward` gets it; only views of "obs" up to the newest step, and
            of earlier "actions" and "rewards", are known there.
        used_for_training: whether trajectories and training batches have it.

    Raises:
        ConfigError: the view cannot be given; names what to use.
    """

    data_col: str | None = None
    space: Space[Any] | None = None
    shift: int | str | Sequence[int] = 0
    index: int | None = None
    batch_repeat_value: int = 1
    used_for_compute_actions: bool = True
    used_for_training: bool = True

    def __post_init__(self) -> None:
        if self.batch_repeat_value != 1:
            raise ConfigError(
                f"batch_repeat_value={self.batch_repeat_value}: every row has its own view here: leave it out, and "
                "keep what belongs to a sequence in the model's state (get_initial_state)"
            )
        if (self.data_col or "").startswith("state_") and self.steps != [0]:
            raise ConfigError(
                f"ViewRequirement({self.data_col!r}, shift={self.shift!r}): earlier states are not recorded: keep "
                "them in the model's state (get_initial_state), or take config['model']['use_attention']"
            )

    @property
    def steps(self) -> list[int]:
        """The steps of the view, relative to the row's own."""
        if isinstance(self.shift, str):
            first, last, *every = map(int, self.shift.split(":"))
            return [*range(first, last + 1, *every)]
        return [self.shift] if isinstance(self.shift, int) else [*self.shift]

    def combine(self, entries: Sequence[Any], dim: int) -> Any:
        """The entries of the steps as one column: a window along `dim`, or the only one."""
        if isinstance(self.shift, int):
            return entries[0]
        if isinstance(entries[0], SampleBatch):
            return SampleBatch({name: self.combine([each[name] for each in entries], dim) for name in entries[0]})
        return torch.stack(list(entries), dim)


def default_requirements() -> dict[str, ViewRequirement]:
    """Those of every policy in RLlib."""
    own = ("obs", "actions", "rewards", "dones", "eps_id", "unroll_id", "agent_index", "t")
    learned = {name: ViewRequirement(used_for_compute_actions=name == "obs") for name in own}
    return learned | {
        "new_obs": ViewRequirement("obs", shift=1, used_for_compute_actions=False),
        "prev_actions": ViewRequirement("actions", shift=-1),
        "prev_rewards": ViewRequirement("rewards", shift=-1),
        "infos": ViewRequirement(used_for_training=False),
    }


def earlier_steps(requirements: Mapping[str, ViewRequirement], column: str) -> int:
    """How many earlier steps of a column a model reads by its requirements."""
    asked = (each for name, each in requirements.items() if (each.data_col or name) == column)
    return max((-step for each in asked for step in each.steps), default=0)


def derived_inputs(
    requirements: Mapping[str, ViewRequirement], inputs: Mapping[str, Any], action_space: Space[Any]
) -> dict[str, Any]:
    """The views `[N, *]` that a model reads, of its other inputs.

    Args:
        requirements: the model's, by the names of the views.
        inputs: "obs" and those columns of `EARLIER` that the requirements need.
        action_space: that of the model.

    Raises:
        ConfigError: a view is not known when the policy acts.
    """
    found: dict[str, Any] = {}
    for name, each in requirements.items():
        column, steps = each.data_col or name, each.steps
        if not each.used_for_compute_actions or max(steps) > 0 or (name, steps) == ("obs", [0]):
            continue
        if column not in EARLIER or (column != "obs" and max(steps) == 0):
            raise ConfigError(
                f"view_requirements[{name!r}] of {column!r}, shift={each.shift!r}: not known when the policy acts; "
                "views of obs, and of earlier actions and rewards, are: set used_for_compute_actions=False"
            )
        before = None if min(steps) == 0 else to_nested_batch(inputs[EARLIER[column]])
        entries = [
            _at(before, step, column, action_space) if step else to_nested_batch(inputs["obs"]) for step in steps
        ]
        found[name] = each.combine(entries, 1)
    return found


def _at(before: Any, step: int, column: str, action_space: Space[Any]) -> Any:
    """The entries `[N, *]` of an earlier step, of windows `[N, n, *]`.

    A single earlier action or reward has no window dimension. Discrete actions before the first step are 0, as
    in RLlib.
    """
    is_flat = _window_length(before, column, action_space) == 0
    entries = before if is_flat else map_leaves(lambda leaf: leaf[:, step], before)
    return map_leaves(_without_placeholder, entries) if column == "actions" else entries


def _window_length(before: Any, column: str, action_space: Space[Any]) -> int:
    """How many steps windows `[N, n, *]` of a column have; 0: it is a single earlier step `[N, *]`."""
    leaf, entry = _first_leaf(before), len(_first_leaf(action_space).shape) if column == "actions" else 0
    return 0 if column != "obs" and leaf.dim() == 1 + entry else leaf.shape[1]


def _first_leaf(value: Any) -> Any:
    """The first array of a nested column, or the first space of a nested one."""
    while isinstance(value, SampleBatch) or hasattr(value, "spaces"):
        parts = value.spaces if hasattr(value, "spaces") else value
        value = parts[0] if isinstance(parts, tuple) else parts[next(iter(parts))]
    return value


def _without_placeholder(actions: Tensor) -> Tensor:
    """Earlier actions, where the placeholder −1 of discrete ones is 0."""
    return actions if actions.is_floating_point() else actions.clamp(min=0)


def add_views(
    requirements: Mapping[str, ViewRequirement], fragment: SampleBatch, model: Any, action_space: Space[Any]
) -> SampleBatch:
    """A fragment `[T, B, …]` with the columns for training that it lacks.

    Earlier steps before the fragment are known of the columns of `EARLIER`, as many as workers recorded; else they are
    zeros.

    Args:
        requirements: view requirements by column name.
        fragment: a worker's fragment.
        model: reads some of the columns of `EARLIER` as they are.
        action_space: that of the policy's actions.
    """
    found = fragment.copy()
    for name, each in requirements.items():
        own, column = OWN_NAMES.get(name, name), OWN_NAMES.get(each.data_col or name, each.data_col or name)
        read = own in EARLIER.values() and getattr(model, own, 0)
        if not each.used_for_training or column not in fragment or read or (own in fragment and column == own):
            continue
        entries = [_entries(fragment, column, step, action_space) for step in each.steps]
        found[own] = each.combine(entries, 2)
    if "eps_id" not in found:  # no recorder of episodes was with the worker: number those of the fragment
        ends = (fragment.terminated | fragment.truncated).long().cumsum(0)
        earlier = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
        lanes = ends.shape[1]
        found["eps_id"] = earlier * lanes + torch.arange(lanes, device=ends.device)
    if "unroll_id" not in found:
        found["unroll_id"] = torch.zeros_like(found["eps_id"])
    return found


def _entries(fragment: SampleBatch, column: str, step: int, action_space: Space[Any]) -> Any:
    """A column `[T, B, *]` one or more steps earlier or later in the same episode; zeros where there is none."""
    rows = len(fragment.valid)
    if step == 0:
        return map_leaves(lambda leaf: leaf[:rows], fragment[column])
    earlier = fragment.get(EARLIER.get(column, "")) if step < 0 else None
    if earlier is not None:
        flat = map_leaves(lambda leaf: leaf[:rows].flatten(0, 1), earlier)
        if -step <= max(1, _window_length(flat, column, action_space)):
            entries = _at(flat, step, column, action_space)
            return map_leaves(lambda leaf: leaf.unflatten(0, fragment.valid.shape), entries)
    return map_leaves(lambda leaf: _shift(leaf, step, fragment.valid), fragment[column])


def _shift(leaf: Tensor, step: int, valid: Tensor) -> Tensor:
    """`leaf[t + step]` for each row t of `valid [T, B]`, where no reset lies between; else 0."""
    rows = len(valid)
    out = leaf.new_zeros((rows, *leaf.shape[1:]))
    width = abs(step)
    if width >= len(leaf):
        return out
    if step < 0:
        between = torch.stack([valid[start : rows - width + start] for start in range(width)]).all(0)
        source, target = leaf[: rows - width], out[width:]
    else:  # the observation after the last row is known, and the row of a reset has the final one
        count = min(rows, len(leaf) - width)
        later = [valid[start : start + count] for start in range(1, width if len(leaf) > rows else width + 1)]
        between = torch.stack(later).all(0) if later else torch.ones_like(valid[:count])
        source, target = leaf[width : width + count], out[:count]
    target.copy_(torch.where(between.reshape(*between.shape, *[1] * (leaf.dim() - 2)), source, 0))
    return out
