"""The vocabulary of the package: named columns with shared leading dimensions.

Workers and replay buffers do not import policies, and policies do not import them; they share the field names that are
annotated on `SampleBatch`. A rollout fragment holds what a policy reads before a step (`STEP_INPUTS`) as
`[T+1, B, …]` and everything else as `[T, B, …]`; a training batch holds every column as `[N, …]`. Fragments
are of the type `Fragment`; one made by hand becomes one where it enters the pipeline (`typed`).

For models with state the rows of a training batch form sequences, one after the other, and the columns of
`PER_SEQUENCE` have one entry per sequence: `seq_lens [S]` and `state_in [S, …]`. Sequences are padded only inside the
model's forward pass: losses read rows without padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any, Self, TypeVar, overload

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from lightning_rl.errors import did_you_mean

__all__ = [
    "DEFAULT_POLICY",
    "PER_SEQUENCE",
    "STEP_INPUTS",
    "AnyBatch",
    "Fragment",
    "MultiAgentBatch",
    "Padding",
    "SampleBatch",
    "action_mask_of",
    "align_by_env_time",
    "as_plain",
    "concat_samples",
    "count_new_env_steps",
    "env_steps",
    "first_row",
    "flatten_fragment",
    "from_nested_batch",
    "is_new",
    "leading_shape",
    "map_leaves",
    "new_rows",
    "other_agent_batches",
    "pad_time",
    "padding",
    "row_count",
    "sequence_minibatches",
    "to_nested_batch",
    "to_sequences",
    "transition_rows",
    "typed",
]

ARRAYS = (Tensor, np.ndarray)
DEFAULT_POLICY = "default_policy"
"""The id of the one policy, where batches and weights are keyed by policy."""
STEP_INPUTS = ("obs", "state_in", "prev_obs", "prev_actions", "prev_rewards", "central_obs")
"""What a policy reads before a step. Fragments have one row more of these: the value after the last step needs it."""
PER_SEQUENCE = ("seq_lens", "state_in")
"""Columns with one entry per sequence of a training batch."""


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
    next_obs: Tensor | SampleBatch  # off-policy rows: the observation after the step, at an episode's end the final one
    actions: Tensor | SampleBatch  # in the policy's space; the environment received the un-squashed or clipped ones
    rewards: Tensor  # float32, raw
    terminated: Tensor  # bool, the episode ended by itself: no value follows
    truncated: Tensor  # bool, the episode was cut (time limit): the value of the next observation follows
    valid: Tensor  # bool, False on rows that are not experience: the reset row after an end, and padding
    t: Tensor  # int32, step within the episode, 0 at its start; of several agents: own steps of the row's agent
    env_t: Tensor  # int32, several agents: the environment's step within its episode at which the row's agent acted
    eps_id: Tensor  # int64, which episode a row belongs to
    central_obs: Tensor  # float32 [T+1, B, S], several agents: the environment's state, or what all agents see
    action_logp: Tensor  # log-probability of `actions` under the policy that acted
    action_dist_inputs: Tensor  # [N, K], parameters of the distribution that `actions` were sampled from
    action_mask: Tensor  # bool, which discrete actions were allowed
    vf_preds: Tensor  # value estimates of the policy that acted
    advantages: Tensor
    value_targets: Tensor
    intrinsic_rewards: Tensor  # bonus of the exploration strategy; replay sums it over n steps as the rewards
    running_returns: Tensor  # float32, discounted return so far of the episode, for policy.reward_filter=return_std
    step_rewards: Tensor  # [N, n], the rewards that an n-step sum is made of
    step_next_obs: Tensor | SampleBatch  # in rows with n-step rewards, the observation one step later
    weights: Tensor  # importance weights of a prioritized draw
    batch_indexes: Tensor  # where a replayed row lives in its buffer
    state_in: (
        SampleBatch  # recurrent state before the row, "0", "1", …; [S, …] before each sequence of a training batch
    )
    seq_lens: Tensor  # int64 [S], lengths of the sequences that the rows of a training batch are
    following: SampleBatch  # [S, …], `STEP_INPUTS` after each sequence's last row
    replayed: Tensor  # bool, True on rows of an earlier iteration, where new and old fragments are mixed
    prev_obs: Tensor | SampleBatch  # [N, n, *], the n observations before the row's, the oldest first; 0 if none
    prev_actions: Tensor | SampleBatch  # actions of the last step, or [N, n, *] of the last n; −1 or 0. if none
    prev_rewards: Tensor
    central_obs: Tensor  # float32 [N, S], state of the environment or all agents' observations, for central critics
    policy_version: Tensor  # version of the weights that acted
    seeds: Tensor  # int64 [N], seed of each perturbation of the weights (ES, ARS)
    returns: Tensor  # float64 [N, 2], returns of the episodes with θ + σε and θ − σε (ES, ARS)
    perturbed: Tensor  # bool [N], False where the weights were not perturbed
    steps: Tensor  # int64 [N], environment steps per row, where a row is not one step

    __slots__ = ("_columns",)

    @classmethod
    def of(cls, batch: SampleBatch) -> Self:
        """The batch as one of this class; both share their columns, also those that are added later."""
        shared = cls()
        shared._columns = batch._columns
        return shared

    def __init__(self, columns: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        self._columns: dict[str, Any] = {}
        for given in (columns, named):
            for name, value in given.items() if given else ():
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
        return self.map(itemgetter(index))

    def __setitem__(self, name: str, value: Any) -> None:
        # Arrays first: the test for an abstract class costs more than all the rest.
        is_array = type(value) in ARRAYS
        self._columns[name] = to_nested_batch(value) if not is_array and isinstance(value, Mapping | tuple) else value

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
        """Length of the leading dimension: rows `N`, or time steps `T` of a fragment (`STEP_INPUTS` have one more)."""
        for name, column in self._columns.items():
            if name not in STEP_INPUTS and name not in PER_SEQUENCE:
                return column.count if isinstance(column, SampleBatch) else len(column)
        column = next(iter(self._columns.values()), ())
        return column.count if isinstance(column, SampleBatch) else len(column)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns, nested ones included."""
        return sum(column.nbytes for column in self._columns.values())

    # -- whole-batch operations ---------------------------------------------------------------------------------------
    def map(self, fn: Callable[[Any], Any]) -> Self:
        """A batch with `fn` applied to every array, nested ones included."""
        batch = type(self)()
        columns = batch._columns
        for name, column in self._columns.items():
            columns[name] = column.map(fn) if isinstance(column, SampleBatch) else fn(column)
        return batch

    def to(self, device: torch.device | str) -> Self:
        """Every column as a tensor on `device`; Lightning calls this to move a batch.

        To a GPU from pinned memory, so that only code that reads the copy waits for it. Torch keeps the pinned memory
        until the copy is done, and gives it to the next batch.
        """
        on_gpu = torch.device(device).type == "cuda"

        def move(column: Any) -> Tensor:
            tensor = torch.as_tensor(column)
            if on_gpu and tensor.device.type == "cpu" and not tensor.is_pinned():
                tensor = tensor.pin_memory()
            return tensor.to(device, non_blocking=on_gpu)

        return self.map(move)

    def numpy(self) -> Self:
        """Every column as a numpy array on the CPU (views where possible): what travels between processes."""
        return self.map(
            lambda column: column.detach().cpu().numpy() if isinstance(column, Tensor) else np.asarray(column)
        )

    def torch(self) -> Self:
        """Every column as a tensor (views where possible)."""
        return self.map(torch.as_tensor)

    def copy(self) -> Self:
        """A new batch over the same arrays."""
        return type(self)(self._columns)

    def select(self, *names: str) -> Self:
        """Only these columns."""
        return type(self)({name: self[name] for name in names})

    def without(self, *names: str) -> Self:
        """All columns but these."""
        return type(self)({name: column for name, column in self._columns.items() if name not in names})

    def minibatches(self, count: int, generator: torch.Generator | None = None) -> list[Self]:
        """Shuffle the rows and split them into `count` parts whose sizes differ by at most one row.

        One gather of every column and then views: cheaper than `count` gathers. Sequences stay whole.

        Raises:
            ValueError: there are fewer rows (or sequences) than parts.
        """
        if "seq_lens" in self and count > 1:
            return sequence_minibatches(self, count, generator)
        rows = self.count
        if rows < count:
            raise ValueError(
                f"batch has {rows} rows; minibatches={count} needs at least {count}: collect more or lower it"
            )
        if count == 1:
            return [self]  # the order of rows does not change a mean over all of them
        shuffled = self[torch.randperm(rows, generator=generator)]
        edges = [rows * part // count for part in range(count + 1)]
        return [shuffled[start:stop] for start, stop in pairwise(edges)]

    def shuffle(self, generator: torch.Generator | None = None) -> Self:
        """All rows in a random order."""
        return self[torch.randperm(self.count, generator=generator)]

    def timeslices(self, size: int) -> list[Self]:
        """The rows in parts of `size`, in order; the last one has what is left."""
        columns = {name: _parts(column, size) for name, column in self._columns.items()}
        return [
            type(self)({name: parts[index] for name, parts in columns.items()})
            for index in range(-(-self.count // size))
        ]

    def split_by_episode(self) -> list[Self]:
        """The rows of one environment as one batch per episode, split after each end, terminated or truncated."""
        ends = (torch.as_tensor(self.terminated) | torch.as_tensor(self.truncated)).nonzero().flatten() + 1
        edges = sorted({0, *ends.tolist(), self.count})
        return [self[start:stop] for start, stop in pairwise(edges)]

    @staticmethod
    def concat_samples(batches: Sequence[SampleBatch], dim: int | None = None) -> SampleBatch:
        """Join batches in the given order; see the function `concat_samples`."""
        return concat_samples(batches, dim)

    def as_multi_agent(self) -> MultiAgentBatch:
        """The same rows as those of the one policy `DEFAULT_POLICY`."""
        return MultiAgentBatch({DEFAULT_POLICY: self}, env_steps(self))

    def summary(self) -> str:
        """One line per column: name, shape, dtype."""
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


class Fragment(SampleBatch):
    """A rollout fragment: `obs [T+1, B, *]` and the other `STEP_INPUTS`, everything else `[T, B, …]`, with "valid"."""

    __slots__ = ()


class MultiAgentBatch:
    """Batches of several policies that came from the same environment steps.

    Args:
        policy_batches: policy id → its rows, or its fragment, whose lanes (environment, agent) are in order of the
            environments.
        env_steps: number of environment steps that produced them (agent steps are the rows of all policies).
        num_envs: environments that the fragments' lanes belong to; `None`: unknown, or not fragments.
    """

    __slots__ = ("env_steps", "num_envs", "policy_batches")

    def __init__(self, policy_batches: Mapping[str, SampleBatch], env_steps: int, num_envs: int | None = None) -> None:
        self.policy_batches = dict(policy_batches)
        self.env_steps, self.num_envs = env_steps, num_envs

    def __getitem__(self, policy_id: str) -> SampleBatch:
        try:
            return self.policy_batches[policy_id]
        except KeyError:
            known = ", ".join(self.policy_batches) or "none"
            suggestion = did_you_mean(policy_id, self.policy_batches)
            raise KeyError(f"no rows of policy {policy_id!r}.{suggestion} Present: {known}") from None

    def __contains__(self, policy_id: object) -> bool:
        return policy_id in self.policy_batches

    def __len__(self) -> int:
        return self.env_steps

    def items(self) -> Iterator[tuple[str, SampleBatch]]:
        """Pairs of policy id and its batch."""
        return iter(self.policy_batches.items())

    @property
    def count(self) -> int:
        """Environment steps."""
        return self.env_steps

    @property
    def fragments(self) -> MultiAgentBatch:
        """What the workers gave: this batch, unless policies learn from something else in it (`FedBatch`)."""
        return self

    @property
    def agent_steps(self) -> int:
        """Rows of experience over all policies."""
        return sum(env_steps(batch) for batch in self.policy_batches.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all columns of all policies."""
        return sum(batch.nbytes for batch in self.policy_batches.values())

    def map(self, fn: Callable[[Any], Any]) -> MultiAgentBatch:
        """A batch with `fn` applied to every array of every policy."""
        return self.map_batches(lambda batch: batch.map(fn))

    def map_batches(self, fn: Callable[[SampleBatch], SampleBatch]) -> MultiAgentBatch:
        """A batch with `fn` applied to the rows of every policy."""
        parts = {name: fn(batch) for name, batch in self.policy_batches.items()}
        return MultiAgentBatch(parts, self.env_steps, self.num_envs)

    def to(self, device: torch.device | str) -> MultiAgentBatch:
        """Every column as a tensor on `device`."""
        return self.map_batches(lambda batch: batch.to(device))

    def numpy(self) -> MultiAgentBatch:
        """Every column as a numpy array on the CPU (views where possible)."""
        return self.map_batches(SampleBatch.numpy)

    def torch(self) -> MultiAgentBatch:
        """Every column as a tensor (views where possible)."""
        return self.map_batches(SampleBatch.torch)

    def copy(self) -> MultiAgentBatch:
        """A new batch over the same arrays."""
        return self.map_batches(SampleBatch.copy)

    def as_multi_agent(self) -> MultiAgentBatch:
        """This batch itself, so that both kinds of batches have the method."""
        return self

    def timeslices(self, size: int) -> list[MultiAgentBatch]:
        """Parts of `size` environment steps, in order; the last one has what is left.

        Which steps the rows belong to is read from "eps_id" and "env_t", steps in order of their first row; the rows of
        a policy without these columns are one for each step.

        Raises:
            ValueError: the batches are fragments, or a policy without these columns has another number of rows.
        """
        if any(isinstance(typed(batch), Fragment) for batch in self.policy_batches.values()):
            raise ValueError("timeslices got fragments [T, lanes, …]: flatten them to rows first (flatten_fragment)")
        steps: dict[str, Tensor] = {}
        order: dict[tuple[int, int], int] = {}
        for name, batch in self.policy_batches.items():
            if "eps_id" in batch and "env_t" in batch:
                pairs = zip(torch.as_tensor(batch.eps_id).tolist(), torch.as_tensor(batch.env_t).tolist(), strict=True)
                steps[name] = torch.tensor([order.setdefault(pair, len(order)) for pair in pairs], dtype=torch.long)
            elif batch.count != self.env_steps:
                raise ValueError(
                    f"policy {name!r} has {batch.count} rows of {self.env_steps} environment steps and no columns "
                    "eps_id and env_t, which say at which step each row was taken"
                )
            else:
                steps[name] = torch.arange(batch.count)
        total = max(self.env_steps, len(order))
        slices = []
        for start in range(0, total, size):
            inside = {name: ((at >= start) & (at < start + size)).nonzero().squeeze(1) for name, at in steps.items()}
            parts = {name: self.policy_batches[name][rows] for name, rows in inside.items() if len(rows)}
            slices.append(MultiAgentBatch(parts, min(size, total - start)))
        return slices

    @staticmethod
    def concat_samples(batches: Sequence[AnyBatch], dim: int | None = None) -> AnyBatch:
        """Join batches in the given order; see the function `concat_samples`."""
        return concat_samples(batches, dim)

    @staticmethod
    def wrap_as_needed(policy_batches: Mapping[str, SampleBatch], env_steps: int) -> AnyBatch:
        """The rows of `DEFAULT_POLICY` alone as they are, those of other or several policies as a `MultiAgentBatch`."""
        if set(policy_batches) == {DEFAULT_POLICY}:
            return policy_batches[DEFAULT_POLICY]
        return MultiAgentBatch(policy_batches, env_steps)

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {batch}" for name, batch in self.policy_batches.items())
        return f"MultiAgentBatch({self.env_steps} env steps; {parts})"


AnyBatch = SampleBatch | MultiAgentBatch
BatchT = TypeVar("BatchT", bound=SampleBatch)


@overload
def concat_samples(batches: Sequence[SampleBatch], dim: int | None = None) -> SampleBatch: ...
@overload
def concat_samples(batches: Sequence[Any], dim: int | None = None) -> Any: ...
def concat_samples(batches: Sequence[Any], dim: int | None = None) -> Any:
    """Join batches in the given order.

    If one of them is a `MultiAgentBatch`, so is the result: the batches of each policy are joined, the policies come in
    the order in which they first appear, and environment steps are summed.

    Args:
        batches: batches with equal columns (of each policy); "action_mask" allows everything where only others have it.
        dim: dimension to join along; `None` joins rows one after the other, and rollout fragments along `B`
            (shorter ones are padded with `valid=False` rows).

    Raises:
        ValueError: nothing to join, or the batches do not have the same columns.
    """
    if not batches:
        raise ValueError("concat_samples got no batches: pass at least one")
    first = batches[0]
    if len(batches) == 1:
        return first
    if any(isinstance(batch, MultiAgentBatch) for batch in batches):
        return _concat_policies([batch.as_multi_agent() for batch in batches], dim)
    for batch in batches[1:]:
        if set(batch) != set(first):
            odd = sorted(set(batch) ^ set(first))
            if odd == ["action_mask"]:
                return concat_samples(_with_masks(batches), dim)
            raise ValueError(f"batches do not have the same columns; only some have {odd}")
    if dim is None and isinstance(typed(first), Fragment):
        length = max(len(batch.valid) for batch in batches)
        dim, batches = 1, [pad_time(batch, length) for batch in batches]
    return type(first)({name: _concat([batch[name] for batch in batches], dim or 0) for name in first})


def _concat_policies(batches: Sequence[MultiAgentBatch], dim: int | None) -> MultiAgentBatch:
    parts: dict[str, list[SampleBatch]] = {}
    for batch in batches:
        for name, part in batch.items():
            parts.setdefault(name, []).append(part)
    envs = [batch.num_envs for batch in batches if batch.num_envs is not None]
    return MultiAgentBatch(
        {name: concat_samples(own, dim) for name, own in parts.items()},
        sum(batch.env_steps for batch in batches),
        sum(envs) if len(envs) == len(batches) else None,
    )


def _with_masks(batches: Sequence[SampleBatch]) -> list[SampleBatch]:
    """The batches, each with "action_mask": fragments from before an environment's first mask have none."""
    like = next(batch.action_mask for batch in batches if "action_mask" in batch)

    def everything(batch: SampleBatch) -> Any:
        shape = (*batch.rewards.shape, *like.shape[batch.rewards.ndim :])
        return like.new_ones(shape) if isinstance(like, Tensor) else np.ones(shape, bool)

    return [
        batch if "action_mask" in batch else type(batch)(batch._columns, action_mask=everything(batch))
        for batch in batches
    ]


def _concat(columns: Sequence[Any], dim: int) -> Any:
    if isinstance(columns[0], SampleBatch):
        return concat_samples(columns, dim)
    if isinstance(columns[0], Tensor):
        return torch.cat(list(columns), dim)
    return np.concatenate([np.asarray(column) for column in columns], axis=dim)


def _parts(column: Any, size: int) -> Sequence[Any]:
    if isinstance(column, SampleBatch):
        return column.timeslices(size)
    if isinstance(column, Tensor):
        return column.split(size)  # all parts in one call
    return [column[start : start + size] for start in range(0, len(column), size)]


def typed(batch: Any) -> Any:
    """A batch as a `Fragment` if its column "valid" is `[T, B]`; rows `[N, …]`, draws and others as they are."""
    if isinstance(batch, Fragment) or not isinstance(batch, SampleBatch):
        return batch
    if "valid" not in batch or batch.valid.ndim != 2:
        return batch
    return Fragment.of(batch)


def env_steps(batch: AnyBatch) -> int:
    """Rows of experience in a batch of rows or in a rollout fragment; of several policies: environment steps."""
    if isinstance(batch, MultiAgentBatch):
        return batch.env_steps
    if not isinstance(typed(batch), Fragment):
        return batch.count
    # Counting by numpy takes a tenth of a tensor's sum, and a fragment may be a single step.
    return int(np.count_nonzero(batch.valid.numpy(force=True) if isinstance(batch.valid, Tensor) else batch.valid))


def count_new_env_steps(batch: SampleBatch) -> int:
    """Number of environment steps in a fragment or in rows, without those of an earlier iteration (`replayed`)."""
    if "steps" in batch:
        return int(batch["steps"].sum())
    if isinstance(batch, Fragment):
        return int(is_new(batch).sum())
    return int((~batch.replayed).sum()) if "replayed" in batch else batch.count


def is_new(fragment: Fragment) -> Any:
    """Mask of the rows `[T, B]` of a fragment that are experience of this iteration: valid and not `replayed`."""
    return fragment.valid & ~fragment.replayed if "replayed" in fragment else fragment.valid


def new_rows(rows: SampleBatch) -> SampleBatch:
    """The rows `[N, …]` without those of an earlier iteration; if there are some, only the observations remain."""
    if "replayed" not in rows:
        return rows
    return rows.select(*(name for name in ("obs", "central_obs") if name in rows))[~rows.replayed]


def flatten_fragment(fragment: SampleBatch, max_seq_len: int | None = None) -> SampleBatch:
    """The experience of a fragment as rows: `[T, B, …]` → `[N, …]`, without invalid rows and the last observation.

    Args:
        fragment: the fragment of one or more environments.
        max_seq_len: rows of a fragment with `state_in` come in sequences of at most this length (`to_sequences`).
    """
    if max_seq_len is not None and "state_in" in fragment:
        return to_sequences(fragment, max_seq_len)
    steps = len(fragment.valid)
    rows = SampleBatch.of(fragment.without("valid")).map(lambda column: column[:steps].flatten(0, 1))
    valid = fragment.valid.flatten()
    return rows if bool(valid.all()) else rows[valid.nonzero().squeeze(1)]


def action_mask_of(obs: Any, column: Any = None) -> Any:
    """Which discrete actions are allowed for these observations; `None`: all of them.

    The only function that knows where an action mask is stored: in its own column (from the environment's info),
    or in the entry "action_mask" of a Dict observation. A nested mask, such as an array for each entry of a
    MultiDiscrete space, is joined side by side.

    Args:
        obs: nested as the environment's, or as a batch's.
        column: "action_mask" beside the observations; `None` if there is no such column.
    """
    mask = obs.get("action_mask") if column is None and isinstance(obs, Mapping | SampleBatch) else column
    if not isinstance(mask, Mapping | SampleBatch | tuple):
        return mask
    parts: list[Any] = []
    map_leaves(lambda leaf: parts.append(leaf.reshape(len(leaf), -1)), mask)
    return torch.cat(parts, dim=1) if isinstance(parts[0], Tensor) else np.concatenate(parts, axis=1)


def to_nested_batch(value: Any) -> Any:
    """Dicts and tuples of arrays as nested `SampleBatch`es; an array is returned unchanged."""
    if isinstance(value, Mapping):
        return SampleBatch({str(name): to_nested_batch(child) for name, child in value.items()})
    if isinstance(value, tuple):
        return SampleBatch({str(position): to_nested_batch(child) for position, child in enumerate(value)})
    return value


def as_plain(value: Any) -> Any:
    """A batch as nested dicts of tensors on the CPU, which a checkpoint may hold; `to_nested_batch` is the inverse."""
    if isinstance(value, SampleBatch):
        return {name: as_plain(column) for name, column in value.items()}
    return torch.as_tensor(value).detach().cpu()


def from_nested_batch(space: spaces.Space, value: Any) -> Any:
    """The inverse of `to_nested_batch`: dicts and tuples nested like `space`, with the arrays of `value` as leaves.

    Children are looked up by name, in the space's own order, so the order of insertion never matters.
    """
    if isinstance(space, spaces.Dict):
        named = str if isinstance(value, SampleBatch) else lambda name: name  # a Dict's keys may be integers
        return {name: from_nested_batch(child, value[named(name)]) for name, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        entries = value if isinstance(value, SampleBatch) else {str(i): child for i, child in enumerate(value)}
        return tuple(from_nested_batch(child, entries[str(position)]) for position, child in enumerate(space.spaces))
    return value


# -- nested observations and actions -----------------------------------------------------------------------------------
def map_leaves(fn: Callable[[Any], Any], value: Any) -> Any:
    """`fn` of every array of a nested observation or action, in the same structure."""
    if type(value) in ARRAYS:  # first: the test for an abstract class costs more than all the rest
        return fn(value)
    if isinstance(value, SampleBatch):
        return value.map(fn)
    if isinstance(value, Mapping):
        return {name: map_leaves(fn, child) for name, child in value.items()}
    if isinstance(value, tuple):
        return tuple(map_leaves(fn, child) for child in value)
    return fn(value)


def to_tensors(value: Any, device: torch.device) -> Any:
    """The arrays of a nested observation or action as tensors on `device`, in the same structure."""
    return map_leaves(lambda leaf: torch.as_tensor(leaf, device=device), value)


def leading_shape(value: Any) -> tuple[int, int]:
    """The first two sizes of a nested observation's arrays, `[T, B, *]`."""
    shape = _first_leaf(value).shape
    return shape[0], shape[1]


def row_count(value: Any) -> int:
    """The first size of a nested observation's arrays, `[N, *]`."""
    leaf = _first_leaf(value)
    return (
        leaf.shape[0] if isinstance(leaf, Tensor) else len(leaf)
    )  # len() of a tensor is a constant in an exported file


def _first_leaf(value: Any) -> Any:
    while isinstance(value, Mapping | tuple | SampleBatch):
        value = value[0] if isinstance(value, tuple) else value[next(iter(value))]
    return value


def first_row(value: Any) -> Any:
    """The first row of a nested batch of actions."""
    return map_leaves(itemgetter(0), value)


def transition_rows(fragment: SampleBatch) -> SampleBatch:
    """The experience of a fragment as rows `[N, …]` with `next_obs`, in order of environment and then of time.

    `t` is 0 where an episode starts; `next_obs` of an episode's last row is its final observation.
    """
    steps = len(fragment.valid)
    rows = SampleBatch.of(fragment.without("valid")).map(lambda column: column[:steps])
    rows["next_obs"] = map_leaves(lambda column: column[1:], fragment.obs)
    rows = rows.map(lambda column: column.transpose(0, 1).flatten(0, 1))
    return rows[fragment.valid.T.flatten().nonzero().squeeze(1)]


# -- sequences for models with state ----------------------------------------------------------------------------------
def to_sequences(fragment: SampleBatch, max_seq_len: int) -> SampleBatch:
    """Split the experience of a fragment `[T, B, …]` into sequences, one environment after the other.

    A sequence ends with its episode, with the fragment, or after `max_seq_len` rows; its `state_in` is the recurrent
    state recorded before its first row.

    Args:
        fragment: a fragment; models with state need `state_in [T+1, B, …]`, the state before each row.
        max_seq_len: ≥ 1, the number of steps that a gradient flows back.
    """
    valid, ended = fragment.valid.t(), (fragment.terminated | fragment.truncated).t()  # [B, T]
    steps = valid.shape[1]
    time = torch.arange(steps, device=valid.device)
    fresh = torch.ones_like(valid)
    fresh[:, 1:] = ended[:, :-1] | ~valid[:, :-1]
    since = time - torch.where(fresh, time, 0).cummax(1).values  # rows since the episode (or the fragment) began
    kept = valid.flatten().nonzero().squeeze(1)
    first = (since % max_seq_len == 0).flatten()[kept]

    def rows(column: Tensor) -> Tensor:
        return column[:steps].transpose(0, 1).flatten(0, 1)[kept]

    sequences = SampleBatch.of(fragment.without("valid", "state_in")).map(rows)
    if "state_in" in fragment:
        sequences["state_in"] = fragment.state_in.map(lambda column: rows(column)[first])
    sequences["seq_lens"] = torch.bincount(first.cumsum(0) - 1)
    return sequences


def sequence_minibatches(batch: BatchT, count: int, generator: torch.Generator | None) -> list[BatchT]:
    """Shuffle whole sequences and split them into `count` minibatches with nearly equal numbers of sequences.

    Raises:
        ValueError: there are fewer sequences than parts.
    """
    lengths: Tensor = batch.seq_lens
    if len(lengths) < count:
        raise ValueError(
            f"batch has {len(lengths)} sequences; minibatches={count} needs at least {count}: collect more, lower it, "
            "or lower model.max_seq_len"
        )
    order = torch.randperm(len(lengths), generator=generator).to(lengths.device)
    starts = lengths.cumsum(0) - lengths
    parts = []
    for chosen in order.tensor_split(count):
        lens = lengths[chosen]
        within = torch.arange(int(lens.sum()), device=lens.device) - (lens.cumsum(0) - lens).repeat_interleave(lens)
        index = starts[chosen].repeat_interleave(lens) + within
        part = batch.without(*PER_SEQUENCE)[index]
        for name in PER_SEQUENCE:
            if name in batch:
                column = batch[name]
                part[name] = column[chosen]
        parts.append(part)
    return parts


@dataclass(frozen=True, slots=True)
class Padding:
    """Index arrays that turn the rows of `S` sequences into `S · L` padded rows (`L`: the longest sequence) and back.

    Attributes:
        rows: int64 `[S · L]`, the row at each padded position; positions after a sequence's end repeat its first row.
        kept: int64 `[N]`, the padded positions that hold rows.
    """

    rows: Tensor
    kept: Tensor


def padding(seq_lens: Tensor) -> Padding | None:
    """The padding for sequences of these lengths; `None` if all have the same length."""
    longest = int(seq_lens.max())
    inside = torch.arange(longest, device=seq_lens.device) < seq_lens.unsqueeze(1)  # [S, L]
    if bool(inside.all()):
        return None
    starts = (seq_lens.cumsum(0) - seq_lens).unsqueeze(1)
    rows = torch.where(inside, starts + torch.arange(longest, device=seq_lens.device), starts)
    return Padding(rows.flatten(), inside.flatten().nonzero().squeeze(1))


def pad_time(fragment: SampleBatch, length: int) -> SampleBatch:
    """Append `valid=False` rows to a fragment until it has `length` steps, so that it can be joined with longer ones.

    `STEP_INPUTS`, which have one row more, repeat their last row: networks then compute on real values.
    """
    steps = len(fragment.valid)

    def padded(column: Tensor) -> Tensor:
        last = column[-1:] if len(column) > steps else torch.zeros_like(column[-1:])
        return torch.cat([column, last.expand(length - steps, *column.shape[1:])])

    return fragment if steps == length else fragment.map(padded)


# -- several policies in the same environments -------------------------------------------------------------------------
def other_agent_batches(
    batch: MultiAgentBatch, policies: Mapping[str, Any], policy_id: str
) -> dict[str, tuple[Any, SampleBatch]]:
    """What `postprocess_trajectory` of one policy gets of the other agents: policy id → (policy, its fragment).

    If several agents of an environment have the policy itself, its own fragment is among them: lane
    `environment · n + j` of it is the `j`-th of these `n` agents. `align_by_env_time` finds the rows of the same
    environment steps.

    Args:
        batch: fragments of the policies, from the same environments.
        policies: the policies, by id.
        policy_id: the id of the policy that postprocesses its fragment.
    """
    return {
        name: (policies[name], part)
        for name, part in batch.items()
        if name != policy_id
        or (batch.num_envs is not None and isinstance(typed(part), Fragment) and part.valid.shape[1] > batch.num_envs)
    }


def align_by_env_time(own: SampleBatch, other: SampleBatch, num_envs: int) -> Tensor:
    """Where the agents of another policy acted at the same environment step as the row of each own lane.

    Args:
        own: fragment `[T, L, …]` of a policy, with "eps_id" and "env_t"; lanes in order of the environments.
        other: fragment `[T', E · n, …]` of a policy in the same `E` environments; it may be `own` itself.
        num_envs: `E`, environments of both (`MultiAgentBatch.num_envs`).

    Returns:
        int64 `[T, L, n]`: the row in `other` of agent `j` of those `n`, whose lane is `environment · n + j`; −1 where
        that agent did not act at this step, and on rows that are not valid.

    Raises:
        ValueError: lanes are not a multiple of the environments.
    """
    for name, fragment in (("own", own), ("other", other)):
        if fragment.valid.shape[1] % num_envs:
            raise ValueError(f"{name} has {fragment.valid.shape[1]} lanes; expected a multiple of num_envs={num_envs}")
    slots = other.valid.shape[1] // num_envs
    episodes = torch.cat([fragment.eps_id[fragment.valid] for fragment in (own, other)])
    times = torch.cat([fragment.env_t[fragment.valid] for fragment in (own, other)]).long()
    found = torch.full((*own.valid.shape, slots), -1, device=own.valid.device)
    if not len(times):
        return found
    episodes = torch.unique(episodes, return_inverse=True)[1]
    steps, inverse = torch.unique(episodes * (int(times.max()) + 1) + times, return_inverse=True)
    rows, lanes = other.valid.nonzero(as_tuple=True)
    mine = len(inverse) - len(rows)
    table = inverse.new_full((len(steps), slots), -1)
    table[inverse[mine:], lanes % slots] = rows
    found[own.valid] = table[inverse[:mine]]
    return found
