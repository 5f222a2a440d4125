"""The vocabulary of the package: named columns with shared leading dimensions.

Workers, buffers and policies know nothing of each other; what they share are the field names annotated on
`SampleBatch`. A rollout
fragment holds `obs [T+1, B, *]` and everything else as `[T, B, …]`; a training batch holds every column as `[N, …]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from lightning_rl.errors import did_you_mean

__all__ = ["MultiAgentBatch", "SampleBatch", "concat_samples", "flattened", "is_fragment", "nested", "restored"]


class SampleBatch:
    """Named tensors (or numpy arrays, or nested batches for Dict and Tuple spaces) with shared leading dimensions.

    `batch.obs` and `batch["obs"]` name a column; `batch[index]` takes rows from every column. The annotations below
    are the field names that the package itself uses; a policy may add its own.

    Args:
        columns: name → array. A mapping or tuple value becomes a nested `SampleBatch` (tuple entries are named "0",
            "1", …).
    """

    obs: (
        Tensor | SampleBatch
    )  # as the environment gave them, dtype kept; [T+1, B, *] in a fragment, [N, *] in a training batch
    next_obs: Tensor | SampleBatch  # off-policy rows: the observation after the step, the final one at an episode's end
    actions: Tensor | SampleBatch  # in the policy's space; the environment received the un-squashed or clipped ones
    rewards: Tensor  # float32, raw
    terminated: Tensor  # bool, the episode ended by itself: no value follows
    truncated: Tensor  # bool, the episode was cut (time limit): the value of the next observation follows
    valid: Tensor  # bool, False on rows that are not experience: the reset row after an end, and padding
    t: Tensor  # int32, step within the episode, 0 at its start
    eps_id: Tensor  # int64, which episode a row belongs to
    action_logp: Tensor  # log-probability of `actions` under the policy that acted
    action_dist_inputs: Tensor  # [N, K], what parametrised that distribution
    action_mask: Tensor  # bool, which discrete actions were allowed
    vf_preds: Tensor  # value estimates of the policy that acted
    advantages: Tensor
    value_targets: Tensor
    weights: Tensor  # importance weights of a prioritised draw
    batch_indexes: Tensor  # where a replayed row lives in its buffer
    state_in: SampleBatch  # recurrent state before the row
    seq_lens: Tensor  # int64 [S], lengths of the padded sequences in a recurrent batch
    prev_actions: Tensor | SampleBatch
    prev_rewards: Tensor
    policy_version: Tensor  # which weights acted

    __slots__ = ("_columns",)

    def __init__(self, columns: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        self._columns: dict[str, Any] = {}
        for name, value in {**(columns or {}), **named}.items():
            self[name] = value

    # -- naming columns -----------------------------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pickle and copy probe dunder names before _columns exists
            raise AttributeError(name)
        try:
            return self._columns[name]
        except KeyError:
            raise AttributeError(self._missing(name)) from None

    def __getitem__(self, index: Any) -> Any:
        """Column of that name, or the rows `index` (slice, int array, bool mask) of every column."""
        if isinstance(index, str):
            try:
                return self._columns[index]
            except KeyError:
                raise KeyError(self._missing(index)) from None
        return self.map(lambda column: column[index])

    def __setitem__(self, name: str, value: Any) -> None:
        self._columns[name] = nested(value) if isinstance(value, Mapping | tuple) else value

    def __delitem__(self, name: str) -> None:
        del self._columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return self.count

    def _missing(self, name: str) -> str:
        present = ", ".join(self._columns) or "none"
        return f"no column {name!r} in this batch.{did_you_mean(name, self._columns)} Present: {present}"

    def get(self, name: str, default: Any = None) -> Any:
        """Column of that name, or `default`."""
        return self._columns.get(name, default)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Pairs of column name and column."""
        return iter(self._columns.items())

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in the order they were set."""
        return list(self._columns)

    @property
    def count(self) -> int:
        """Length of the leading dimension: rows `N`, or time steps `T` of a fragment (`obs` has one more there)."""
        for name, column in self._columns.items():
            if name != "obs":
                return column.count if isinstance(column, SampleBatch) else len(column)
        obs = self._columns.get("obs", ())
        return obs.count if isinstance(obs, SampleBatch) else len(obs)

    # -- whole-batch operations ---------------------------------------------------------------------------------------
    def map(self, fn: Callable[[Any], Any]) -> SampleBatch:
        """A batch with `fn` applied to every array, nested ones included."""
        batch = SampleBatch()
        columns = batch._columns
        for name, column in self._columns.items():
            columns[name] = column.map(fn) if isinstance(column, SampleBatch) else fn(column)
        return batch

    def to(self, device: torch.device | str, non_blocking: bool = False) -> SampleBatch:
        """Every tensor on `device`; Lightning calls this to move a batch."""
        return self.map(lambda column: torch.as_tensor(column).to(device, non_blocking=non_blocking))

    def numpy(self) -> SampleBatch:
        """Every column as a numpy array on the CPU (views where possible): what travels between processes."""
        return self.map(
            lambda column: column.detach().cpu().numpy() if isinstance(column, Tensor) else np.asarray(column)
        )

    def torch(self) -> SampleBatch:
        """Every column as a tensor (views where possible)."""
        return self.map(torch.as_tensor)

    def copy(self) -> SampleBatch:
        """A new batch over the same arrays."""
        return SampleBatch(self._columns)

    def select(self, *names: str) -> SampleBatch:
        """Only these columns."""
        return SampleBatch({name: self[name] for name in names})

    def without(self, *names: str) -> SampleBatch:
        """All columns but these."""
        return SampleBatch({name: column for name, column in self._columns.items() if name not in names})

    def minibatches(self, count: int, generator: torch.Generator | None = None) -> list[SampleBatch]:
        """Shuffle the rows and cut them into `count` parts whose sizes differ by at most one row.

        One gather of every column and then views: cheaper than `count` gathers.

        Raises:
            ValueError: there are fewer rows than parts.
        """
        rows = self.count
        if rows < count:
            raise ValueError(
                f"batch has {rows} rows; minibatches={count} needs at least {count}: collect more or lower it"
            )
        if count == 1:
            return [self]  # a mean over all rows does not ask for their order
        shuffled = self[torch.randperm(rows, generator=generator)]
        edges = [rows * part // count for part in range(count + 1)]
        return [shuffled[start:stop] for start, stop in pairwise(edges)]

    @staticmethod
    def concat_samples(batches: Sequence[SampleBatch], dim: int = 0) -> SampleBatch:
        """Join batches along `dim` in the order given; see `concat_samples`."""
        return concat_samples(batches, dim)

    def summary(self) -> str:
        """One line a column: name, shape, dtype."""
        lines = []
        for name, column in self._columns.items():
            if isinstance(column, SampleBatch):
                lines += [f"{name}.{line}" for line in column.summary().splitlines()]
            else:
                lines.append(f"{name} {list(getattr(column, 'shape', [len(column)]))} {getattr(column, 'dtype', '')}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return "SampleBatch(" + ", ".join(self.summary().splitlines()) + ")"

    def __getstate__(self) -> dict[str, Any]:
        return self._columns

    def __setstate__(self, columns: dict[str, Any]) -> None:
        self._columns = columns


class MultiAgentBatch:
    """Batches of several policies that came from the same environment steps.

    Args:
        policy_batches: policy id → its rows.
        env_steps: how many environment steps they come from (agent steps are the sum of the rows).
    """

    __slots__ = ("env_steps", "policy_batches")

    def __init__(self, policy_batches: Mapping[str, SampleBatch], env_steps: int) -> None:
        self.policy_batches = dict(policy_batches)
        self.env_steps = env_steps

    @property
    def agent_steps(self) -> int:
        """Rows over all policies."""
        return sum(batch.count for batch in self.policy_batches.values())

    def to(self, device: torch.device | str, non_blocking: bool = False) -> MultiAgentBatch:
        """Every tensor on `device`."""
        moved = {name: batch.to(device, non_blocking) for name, batch in self.policy_batches.items()}
        return MultiAgentBatch(moved, self.env_steps)


def concat_samples(batches: Sequence[SampleBatch], dim: int = 0) -> SampleBatch:
    """Join batches along `dim` in the order given (workers' fragments: `dim=1`, the environments).

    Raises:
        ValueError: nothing to join, or the batches do not have the same columns.
    """
    if not batches:
        raise ValueError("concat_samples got no batches: pass at least one")
    first = batches[0]
    if len(batches) == 1:
        return first
    for batch in batches[1:]:
        if set(batch.columns) != set(first.columns):
            odd = sorted(set(batch.columns) ^ set(first.columns))
            raise ValueError(f"batches do not have the same columns; only some have {odd}")
    return SampleBatch({name: _concat([batch[name] for batch in batches], dim) for name in first.columns})


def _concat(columns: Sequence[Any], dim: int) -> Any:
    if isinstance(columns[0], SampleBatch):
        return concat_samples(columns, dim)
    if isinstance(columns[0], Tensor):
        return torch.cat(list(columns), dim)
    return np.concatenate([np.asarray(column) for column in columns], axis=dim)


def is_fragment(batch: SampleBatch) -> bool:
    """Whether the batch is a rollout fragment `[T, B, …]` rather than rows `[N, …]`."""
    return "valid" in batch and batch.valid.dim() == 2


def flattened(fragment: SampleBatch) -> SampleBatch:
    """The experience of a fragment as rows: `[T, B, …]` → `[N, …]`, without invalid rows and the last observation."""
    rows = SampleBatch({name: column for name, column in fragment.items() if name not in ("obs", "valid")})
    obs = fragment["obs"]
    rows["obs"] = obs.map(lambda column: column[:-1]) if isinstance(obs, SampleBatch) else obs[:-1]
    rows = rows.map(lambda column: column.flatten(0, 1))
    valid = fragment.valid.flatten()
    return rows if bool(valid.all()) else rows[valid.nonzero().squeeze(1)]


def nested(value: Any) -> Any:
    """Dicts and tuples of arrays as nested batches; arrays as they are."""
    if isinstance(value, Mapping):
        return SampleBatch({str(name): nested(child) for name, child in value.items()})
    if isinstance(value, tuple):
        return SampleBatch({str(position): nested(child) for position, child in enumerate(value)})
    return value


def restored(space: spaces.Space, value: Any) -> Any:
    """The inverse of `nested`: the dicts and tuples that `space` has, with the arrays of `value` as leaves.

    Children are looked up by name, in the space's own order, so the order of insertion never matters.
    """
    if isinstance(space, spaces.Dict):
        return {name: restored(child, value[name]) for name, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        entries = value if isinstance(value, SampleBatch) else {str(i): child for i, child in enumerate(value)}
        return tuple(restored(child, entries[str(position)]) for position, child in enumerate(space.spaces))
    return value
