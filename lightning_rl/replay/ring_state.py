"""Creates rings for a first fragment or from a checkpoint, and compares a ring with new fragments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from lightning_rl.errors import CheckpointError, ConfigError
from lightning_rl.replay.columns import Columns, Layout
from lightning_rl.replay.fragment_arrays import FragmentArrays
from lightning_rl.replay.frames import FramesColumn, Stack, find_stack
from lightning_rl.replay.ring import Ring
from lightning_rl.replay.storage import Allocator

__all__ = ["check_same", "restore_ring", "ring_for", "ring_state", "with_masks"]


def ring_for(steps: FragmentArrays, capacity: int, allocate: Allocator, obs_frames: int | str) -> Ring:
    """An empty ring for fragments like this one.

    Args:
        steps: the first fragment.
        capacity: rows, over all environments.
        allocate: creates the arrays.
        obs_frames: frames in a stacked image, "auto" or 0; see `ReplayBuffer`.

    Raises:
        ConfigError: the images are no stacks of that many frames, or the rows do not fit.
    """
    layouts = []
    for path, leaf in steps.leaves.items():
        stack = find_stack(leaf, steps.valid, obs_frames) if path[0] == "obs" else None
        layouts.append(Layout(path, leaf.shape[2:], leaf.dtype.name, stack))
    history = max((layout.stack.frames - 1 for layout in layouts if layout.stack), default=0)
    if not history and obs_frames not in ("auto", 0, 1):
        raise ConfigError(
            f"obs_frames={obs_frames}, but no observation is a stack of so many frames that moves on with every step: "
            f"{', '.join(str(layout) for layout in layouts if layout.path[0] == 'obs')}; set obs_frames=0"
        )
    rows = -(-capacity // steps.num_envs)
    # One slot for the newest observation; twice the history: the oldest rows lose theirs, a new episode adds its own.
    length = max(rows, history + 1) + 1 + history
    ring = Ring(Columns(layouts, length, steps.num_envs, allocate), length)
    for frames in ring.columns.frames.values():
        frames.proven = obs_frames != "auto"
    return ring


def with_masks(ring: Ring, steps: FragmentArrays) -> FragmentArrays:
    """The fragment, and the ring, both with action masks if one of them has some; the other one allowed everything.

    An environment may give its first mask long after the first fragment.

    Raises:
        ConfigError: the masks do not fit into the memory.
    """
    path = ("action_mask",)
    if path in steps.leaves and not ring.masked:
        ring.add_masks(Layout(path, steps.leaves[path].shape[2:], "bool"))
    elif ring.masked and path not in steps.leaves:
        masks = np.ones((*steps.valid.shape, *ring.columns.leaves[path].shape), bool)
        return replace(steps, leaves={**steps.leaves, path: masks})
    return steps


def check_same(ring: Ring, steps: FragmentArrays) -> None:
    """Raise an error for a fragment that does not fit the ring.

    Raises:
        ConfigError: it has other environments, columns, shapes or types than the ring.
    """
    leaves, stored = steps.leaves, ring.columns.leaves
    if steps.num_envs == ring.num_envs and leaves.keys() == stored.keys():
        for path, leaf in leaves.items():
            column = stored[path]
            if leaf.shape[2:] != column.shape or leaf.dtype != column.dtype:
                break
        else:
            return
    found = [Layout(path, leaf.shape[2:], leaf.dtype.name) for path, leaf in leaves.items()]
    raise ConfigError(
        f"the replay buffer holds {_describe_stored(ring.num_envs, ring.columns.layouts())}; this fragment has "
        f"{_describe_stored(steps.num_envs, found)}: a buffer takes fragments of one set of environments only"
    )


def ring_state(ring: Ring) -> dict[str, Any]:
    """A ring as plain containers and tensors, without slots that were never filled; tensors share the ring's memory."""
    columns = []
    for layout, column in zip(ring.columns.layouts(), ring.columns.leaves.values(), strict=True):
        stack = None if layout.stack is None else [layout.stack.frames, layout.stack.last]
        columns.append(
            {
                "path": list(layout.path),
                "shape": list(layout.shape),
                "dtype": layout.dtype,
                "stack": stack,
                "proven": bool(getattr(column, "proven", False)),
                "rows": torch.from_numpy(column.array[: ring.limit]),
            }
        )
    return {
        "length": ring.length,
        "num_envs": ring.num_envs,
        "rows": ring.rows,
        "heads": torch.from_numpy(ring.heads),
        "due": torch.from_numpy(ring.due),
        "flags": torch.from_numpy(ring.flags[: ring.limit]),
        "columns": columns,
    }


def restore_ring(state: Mapping[str, Any], allocate: Allocator, present: Ring | None) -> Ring:
    """Restore a ring from `ring_state`.

    Args:
        state: state of a ring.
        allocate: creates the arrays.
        present: the ring to replace, or `None`.

    Raises:
        CheckpointError: `present` has other columns, or another number of environments.
        ConfigError: the rows do not fit.
    """
    layouts = [_layout(column) for column in state["columns"]]
    if present is not None:
        there, here = _layout_names(layouts), _layout_names(present.columns.layouts())
        if (there, state["num_envs"]) != (here, present.num_envs):
            raise CheckpointError(
                f"the checkpoint's replay buffer holds {_describe_stored(state['num_envs'], layouts)}, this one "
                f"{_describe_stored(present.num_envs, present.columns.layouts())}: use the environment and the workers "
                "of the run that wrote it, or start without the buffer"
            )
    ring = Ring(Columns(layouts, state["length"], state["num_envs"], allocate), state["length"])
    for column, saved in zip(ring.columns.leaves.values(), state["columns"], strict=True):
        rows = saved["rows"].numpy()
        column.array[: len(rows)] = rows
        if isinstance(column, FramesColumn):
            column.proven = saved["proven"]
    ring.flags[: len(state["flags"])] = state["flags"].numpy()
    ring.due[:] = state["due"].numpy()
    ring.move_heads(state["heads"].numpy().copy())
    ring.rows = state["rows"]
    return ring


def _layout(saved: Mapping[str, Any]) -> Layout:
    shape = tuple(saved["shape"])
    stack = None if saved["stack"] is None else Stack(saved["stack"][0], shape, saved["stack"][1])
    return Layout(tuple(saved["path"]), shape, saved["dtype"], stack)


def _layout_names(layouts: Sequence[Layout]) -> set[str]:
    return {str(layout) for layout in layouts}


def _describe_stored(num_envs: int, layouts: Sequence[Layout]) -> str:
    return f"{num_envs} environments with {', '.join(map(str, layouts))}"
