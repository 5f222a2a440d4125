"""A ring of environment steps: assigns slots to the rows of fragments, and tracks which slots can be drawn.

Each environment has its own ring, `R` slots long; slot `r·B + b` is row `r` of environment `b`. The stored form
does not depend on the autoreset mode or the length of fragments: steps follow one another, and after a step without a
successor there is a slot with only the observation after it. So the next observation of every step is in the next slot
of its environment, and is stored once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch

from lightning_rl.errors import CheckpointError, ConfigError
from lightning_rl.replay.columns import Columns, FramesColumn, Layout, Path, described, layout_of
from lightning_rl.replay.fragment_arrays import FragmentArrays
from lightning_rl.replay.frames import find_stack
from lightning_rl.replay.storage import Allocator
from lightning_rl.sample_batch import STEP_INPUTS

__all__ = ["ENDED", "MASKED", "ROW", "SAMPLEABLE", "TERMINATED", "TRUNCATED", "Ring"]

TERMINATED, TRUNCATED, MASKED, ROW, SAMPLEABLE = 1, 2, 4, 8, 128
"""Flags of a slot: how its step ended; whether its action mask is known; whether it holds a step; whether it can be
drawn, which means that its step's learning target can be computed from stored rows."""
ENDED = TERMINATED | TRUNCATED
NONE = np.empty(0, np.int64)
MASK: Path = ("action_mask",)


class Ring:
    """The stored steps of `B` environments.

    Args:
        columns: columns to store, "obs" among them.
        length: slots per environment, `R`.

    Attributes:
        flags: uint8 `[R · B]`.
        heads: int64 `[B]`, position of each environment's newest observation, which belongs to no step yet: the number
            of slots filled so far, less one. Modulo `R` it is a row.
        due: int64 `[B]`, the `t` of the step that would continue the newest one; −1 after an episode's end, −2 if no
            step continues it (`mark_discontinuity`).
        rows: number of slots that can be drawn.
        limit: bound on the indices of slots that can be drawn.
    """

    def __init__(self, columns: Columns, length: int) -> None:
        self.columns, self.length, self.num_envs = columns, length, columns.num_envs
        self.slots, self.history, self.rows = columns.slots, columns.history, 0
        self.masked = "action_mask" in columns
        self.flags = np.zeros(self.slots, np.uint8)
        self.heads = np.full(self.num_envs, -1)
        self.due = np.full(self.num_envs, -1)
        self._envs = np.arange(self.num_envs)
        self.move_heads(self.heads)

    @classmethod
    def for_fragment(cls, steps: FragmentArrays, capacity: int, allocate: Allocator, stack_frames: bool) -> Self:
        """An empty ring for fragments like this one.

        Args:
            steps: the first fragment.
            capacity: rows, over all environments.
            allocate: creates the arrays.
            stack_frames: see `ReplayBuffer`.

        Raises:
            ConfigError: the rows do not fit.
        """
        layouts = []
        for path, leaf in steps.leaves.items():
            stack = find_stack(leaf, steps.valid) if path[0] == "obs" and stack_frames else None
            layouts.append(Layout(path, leaf.shape[2:], leaf.dtype, stack))
        history = max((layout.stack.frames - 1 for layout in layouts if layout.stack), default=0)
        rows = -(-capacity // steps.num_envs)
        # One slot for the newest observation; the history twice: of the oldest rows, and of a new episode.
        length = max(rows, history + 1) + 1 + history
        columns = Columns(layouts, length, steps.num_envs, allocate)
        return cls(columns, length)

    # -- positions and slots ------------------------------------------------------------------------------------------
    def slot(self, position: np.ndarray, env: np.ndarray) -> np.ndarray:
        """The slots of positions in their environments."""
        return position % self.length * self.num_envs + env

    def after(self, slots: np.ndarray, steps: Any = 1) -> np.ndarray:
        """The slots `steps` later in the same environments."""
        return (slots + steps * self.num_envs) % self.slots

    def move_heads(self, heads: np.ndarray) -> None:
        """Set the positions of the newest observations."""
        self.heads = heads
        lap = heads // self.length
        self._newest = self.slot(heads, self._envs)  # slots after it were written in the lap before
        self._lap = lap * self.slots
        newest = int(heads.max())
        self.limit = min(self.slots, (newest + 1) * self.num_envs)
        # Oldest ids that every environment still holds; an id is position · B + environment.
        oldest = newest + 1 + self.history - self.length
        self._stored_everywhere = oldest * self.num_envs, (int(heads.min()) + 1) * self.num_envs

    def ids(self, slots: np.ndarray) -> np.ndarray:
        """Unique ids of the rows now in `slots`: lap · slots + slot."""
        if self.num_envs == 1:
            newest, lap = int(self._newest[0]), int(self._lap[0])
            return slots + np.where(slots > newest, lap - self.slots, lap)
        env = slots % self.num_envs
        return slots + self._lap[env] - self.slots * (slots > self._newest[env])

    def positions(self, slots: np.ndarray) -> np.ndarray:
        """The positions of the rows now in `slots`, counted per environment."""
        return self.ids(slots) // self.num_envs

    def locate(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The slots of rows with these ids, and whether each still holds its row (bool)."""
        slots = ids % self.slots
        low, high = self._stored_everywhere
        if len(ids) and ids.min() >= low and ids.max() < high and self.flags.take(slots).min() >= SAMPLEABLE:
            return slots, np.ones(len(ids), bool)  # the usual case, at half the cost
        return slots, (self.flags[slots] >= SAMPLEABLE) & (self.ids(slots) == ids)

    # -- adding -------------------------------------------------------------------------------------------------------
    def accept(self, steps: FragmentArrays) -> FragmentArrays:
        """A fragment with the columns of this ring, which gets masks if the fragment has some.

        An environment may give its first mask long after the first fragment; all steps without one allowed everything.

        Raises:
            ConfigError: it has other environments, columns, shapes or types than the ring; or the masks do not fit into
                the memory.
        """
        columns = self.columns
        if MASK in steps.leaves and not self.masked:
            columns.add(Layout(MASK, steps.leaves[MASK].shape[2:], np.dtype(bool)))
            columns.array("action_mask")[: self.limit] = True
            self.masked = True
        elif self.masked and MASK not in steps.leaves:
            masks = np.ones((*steps.valid.shape, *columns.leaves[MASK].layout.shape), bool)
            steps = replace(steps, leaves={**steps.leaves, MASK: masks})
        leaves, stored = steps.leaves, columns.leaves
        if steps.num_envs == self.num_envs and leaves.keys() == stored.keys():
            pairs = [(leaf, stored[path].layout) for path, leaf in leaves.items()]
            if all(leaf.shape[2:] == layout.shape and leaf.dtype == layout.dtype for leaf, layout in pairs):
                return steps
        found = [Layout(path, leaf.shape[2:], leaf.dtype) for path, leaf in leaves.items()]
        raise ConfigError(
            f"the replay buffer holds {described(self.num_envs, columns.layouts)}; this fragment has "
            f"{described(steps.num_envs, found)}: a buffer takes fragments of one set of environments only"
        )

    def mark_discontinuity(self) -> None:
        """Declare that the next fragment does not continue the stored steps, even if its observations look like it."""
        self.due[:] = -2

    @property
    def longest(self) -> int:
        """Number of steps that can be added at once without filling a slot twice or dropping the newest half."""
        return max(1, self.length // (2 + 2 * self.history) - 1)

    def add(self, steps: FragmentArrays) -> tuple[np.ndarray, np.ndarray]:
        """Store at most `longest` steps of every environment.

        Returns:
            The slots that can no longer be drawn, and those that can be from now on.

        Raises:
            ConfigError: images were assumed to be frame stacks and are not, and whole ones do not fit.
        """
        count, num_envs = steps.valid.shape
        same = self._same_obs(steps)
        waiting = self._take_late_masks(steps, same) if self.masked else None
        present = np.count_nonzero(steps.valid)
        if not present:
            return NONE, self._now_sampleable(NONE, waiting)
        follows = self._follows(steps)
        goes_on = same & steps.valid[0] & (self.due >= 0)
        if steps.t is not None:
            goes_on &= steps.t[0] == self.due
        start = int(self.heads[0]) % self.length
        in_step = not self.masked and start + count < self.length and bool((self.heads == self.heads[0]).all())
        if in_step and present == steps.valid.size and goes_on.all():
            return self._add_block(steps, start)
        rows = np.zeros((num_envs, count + 1), bool)
        rows[:, :-1] = steps.valid.T
        kept = rows.copy()
        kept[:, 1:] |= rows[:, :-1]  # the observation after a step is kept, whether it starts a step or not
        found = np.flatnonzero(kept)
        env, step = np.divmod(found, count + 1)
        position, needs_history = self._place(steps, env, step, goes_on, follows)
        slots, is_row = self.slot(position, env), rows.ravel()[found]
        heads = self.heads.copy()
        heads[env] = position  # entries are in order of time: the last assignment wins
        vanished = self._evict(heads)
        self._write(steps, slots, step * num_envs + env, is_row, needs_history)
        self.move_heads(heads)
        return vanished, self._now_sampleable(slots[is_row], waiting)

    def _add_block(self, steps: FragmentArrays, start: int) -> tuple[np.ndarray, np.ndarray]:
        """`add` for environments that all continue in step, from row `start`: slots are contiguous memory."""
        count, num_envs = steps.valid.shape
        heads, first = self.heads + count, (start + 1 + self.history) % self.length
        if first + count > self.length:
            vanished = self._evict(heads)
        else:
            old = self.flags[first * num_envs : (first + count) * num_envs]
            vanished = np.flatnonzero(old >= SAMPLEABLE) + first * num_envs
            old[:] = 0
            self.rows -= len(vanished)
        rows, end = slice(start * num_envs, (start + count) * num_envs), (start + count + 1) * num_envs
        for path, leaf in steps.leaves.items():
            slots = slice(rows.start, end) if path[0] in STEP_INPUTS else rows
            self.columns.leaves[path].write(slots, leaf.reshape(-1, *leaf.shape[2:]), slice(None))
        ends = _ends(steps)
        self.flags[rows] = ends.ravel() | (ROW | SAMPLEABLE)
        self.due[:] = np.where(ends[-1], -1, 1 if steps.t is None else steps.t[-1] + 1)
        self.rows += steps.valid.size
        self.move_heads(heads)
        return vanished, np.arange(rows.start, rows.stop)

    def _follows(self, steps: FragmentArrays) -> dict[Path, np.ndarray]:
        """For stacked images: whether the next row's stack is this row's, shifted by one frame; bool `[T, B]`."""
        found: dict[Path, np.ndarray] = {}
        for path, frames in self.columns.frames.items():
            obs = steps.leaves[path]
            follows = frames.stack.follows(obs[:-1], obs[1:])
            if follows[steps.valid].all():
                found[path] = follows
                frames.proven = frames.proven or bool(frames.stack.moves(obs[1:])[steps.valid].any())
            elif frames.proven:
                raise ConfigError(
                    f"column {'.'.join(path)!r} was stored as stacks of {frames.stack.frames} frames, and now a step "
                    "does not move its stack on by one frame: keep whole images with stack_frames=False"
                )
            else:
                self.columns.keep_whole(path, self.limit)
                self.history = self.columns.history
        return found

    def _same_obs(self, steps: FragmentArrays) -> np.ndarray:
        """Whether each environment's first observation equals its newest stored one; bool `[B]`."""
        same = self.heads >= 0
        if same.any():
            for path, column in self.columns.leaves.items():
                if path[0] == "obs":
                    equal = column.read(self._newest) == steps.leaves[path][0]
                    same &= equal.reshape(self.num_envs, -1).all(1)
        return same

    def _place(
        self,
        steps: FragmentArrays,
        env: np.ndarray,
        step: np.ndarray,
        goes_on: np.ndarray,
        follows: dict[Path, np.ndarray],
    ) -> tuple[np.ndarray, np.ndarray]:
        """The position of each entry, and whether its older frames are missing in the slots before it."""
        first = np.ones(len(env), bool)
        first[1:] = env[1:] != env[:-1]
        firsts = env[first]
        needs_history = np.zeros(len(env), bool)
        for path, follow in follows.items():
            stack, obs = self.columns.frames[path].stack, steps.leaves[path]
            newest = self.columns.leaves[path].read(self._newest[firsts])
            linked = np.zeros(len(env), bool)
            linked[1:] = (step[1:] == step[:-1] + 1) & follow[step[1:] - 1, env[1:]]
            linked[first] = stack.follows(newest, obs[step[first], firsts]) & (self.heads[firsts] >= 0)
            needs_history |= ~linked
        needs_history[first] &= ~goes_on[firsts]
        advance = 1 + needs_history * self.history
        advance[first] -= goes_on[firsts]  # its observation is stored already
        total = np.cumsum(advance)
        elsewhere = (total - advance)[first]
        return self.heads[env] + total - elsewhere[np.cumsum(first) - 1], needs_history

    def _take_late_masks(self, steps: FragmentArrays, same: np.ndarray) -> np.ndarray:
        """Store masks of final observations that come with the reset row; returns the newest steps, still without."""
        late = same & ~steps.valid[0] & (self.due == -1)
        masks = steps.leaves[MASK][0][late]
        self.columns.array("action_mask")[self._newest[late]] = masks
        self.flags[self._newest[late]] |= MASKED * _any(masks)
        return self.slot(self.heads - 1, self._envs)[self.heads > 0]

    def _evict(self, heads: np.ndarray) -> np.ndarray:
        """Make room up to new heads; returns the slots that can no longer be drawn."""
        first = np.maximum(self.heads + 1 + self.history - self.length, 0)
        count = np.maximum(heads + 1 + self.history - self.length - first, 0)
        env = np.repeat(self._envs, count)
        position = first[env] + np.arange(len(env)) - (np.cumsum(count) - count)[env]
        slots = self.slot(position, env)
        vanished = slots[self.flags[slots] >= SAMPLEABLE]
        self.flags[slots] = 0
        self.rows -= len(vanished)
        return vanished

    def _write(
        self,
        steps: FragmentArrays,
        slots: np.ndarray,
        source: np.ndarray,
        is_row: np.ndarray,
        needs_history: np.ndarray,
    ) -> None:
        """Write entry `source[i]` (row · B + environment) of the fragment to `slots[i]`."""
        row_slots, rows, inside = slots[is_row], source[is_row], source < steps.valid.size
        ends = _ends(steps)
        self.flags[row_slots] = ends.ravel()[rows] | ROW
        for path, leaf in steps.leaves.items():
            column, values = self.columns.leaves[path], leaf.reshape(-1, *leaf.shape[2:])
            if path[0] in STEP_INPUTS:
                column.write(slots, values, source)
                if isinstance(column, FramesColumn):
                    column.write_history(slots[needs_history], values, source[needs_history])
            elif path[0] == "action_mask":  # masks of final observations come with the reset row
                column.write(slots[inside], values, source[inside])
                self.flags[slots[inside]] |= MASKED * _any(values[source[inside]])
            else:
                column.write(row_slots, values, rows)
        if len(rows):
            after = np.where(ends, -1, 1 if steps.t is None else steps.t + 1).ravel()
            self.due[rows % self.num_envs] = after[rows]

    def _now_sampleable(self, rows: np.ndarray, waiting: np.ndarray | None) -> np.ndarray:
        """Mark the slots that can be drawn from now on: new rows, and rows that waited for the next mask."""
        if waiting is not None:
            rows = np.union1d(rows, waiting)
            flags, after = self.flags[rows], self.flags[self.after(rows)]
            complete = ((flags & TERMINATED) != 0) | ((after & MASKED) != 0)
            rows = rows[((flags & ROW) != 0) & (flags < SAMPLEABLE) & complete]
        self.flags[rows] |= SAMPLEABLE
        self.rows += len(rows)
        return rows

    # -- saving -------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Plain containers and tensors that share the ring's memory, without slots that were never filled."""
        return {
            "length": self.length,
            "num_envs": self.num_envs,
            "rows": self.rows,
            "heads": torch.from_numpy(self.heads),
            "due": torch.from_numpy(self.due),
            "flags": torch.from_numpy(self.flags[: self.limit]),
            "columns": self.columns.state_dict(self.limit),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], allocate: Allocator, present: Ring | None) -> Self:
        """Restore a ring from `state_dict`.

        Args:
            state: state of a ring.
            allocate: creates the arrays.
            present: the ring to replace, or `None`.

        Raises:
            CheckpointError: `present` has other columns, or another number of environments.
            ConfigError: the rows do not fit.
        """
        num_envs, layouts = state["num_envs"], [layout_of(column) for column in state["columns"]]
        if present is not None:
            here = present.columns.layouts
            if num_envs != present.num_envs or set(map(str, layouts)) != set(map(str, here)):
                raise CheckpointError(
                    f"the checkpoint's replay buffer holds {described(num_envs, layouts)}, this one "
                    f"{described(present.num_envs, here)}: use the environment and the workers of the run that wrote "
                    "it, or start without the buffer"
                )
        ring = cls(Columns.from_state(state["columns"], state["length"], num_envs, allocate), state["length"])
        ring.flags[: len(state["flags"])] = state["flags"].numpy()
        ring.due[:] = state["due"].numpy()
        ring.move_heads(state["heads"].numpy().copy())
        ring.rows = state["rows"]
        return ring


def _ends(steps: FragmentArrays) -> np.ndarray:
    """Flags of how each step ended, uint8 `[T, B]`."""
    return steps.terminated.view(np.uint8) * TERMINATED | steps.truncated.view(np.uint8) * TRUNCATED


def _any(masks: np.ndarray) -> np.ndarray:
    """Whether each mask allows any action, which distinguishes it from the zeros of a row without a mask; uint8."""
    return np.asarray(masks.any(tuple(range(1, masks.ndim))), np.uint8)
