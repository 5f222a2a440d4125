"""RLlib's form of postprocessing: a function of one trajectory, in numpy arrays, in place of a whole fragment."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch

from lightning_rl import sample_batch
from lightning_rl.errors import ConfigError, short_repr
from lightning_rl.rllib.episode_records import EpisodeRecords
from lightning_rl.rllib.sample_batch import SampleBatch
from lightning_rl.rllib.view_requirements import add_views, default_requirements
from lightning_rl.sample_batch import PER_SEQUENCE, Fragment, concat_samples, transition_rows, typed

__all__ = [
    "change_fragment",
    "change_trajectories",
    "fragment_of_trajectory",
    "played_rows",
    "postprocess_stored",
    "postprocess_trajectories",
    "takes_episode",
    "tensor_rows",
    "trajectories",
]

BatchT = TypeVar("BatchT", bound=sample_batch.SampleBatch)


def takes_episode(function: Callable[..., Any], before: int) -> bool:
    """Whether a function of postprocessing takes RLlib's last argument, `episode`, so that it expects one trajectory.

    Args:
        function: a hook or a method, unbound.
        before: the number of its positional arguments before `episode`.
    """
    parameters = inspect.signature(function).parameters.values()
    positional = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    return positional > before


def trajectories(fragment: sample_batch.SampleBatch) -> list[SampleBatch]:
    """The experience of a fragment `[T, B, …]` as numpy rows `[n, …]` of one episode of one environment each.

    They end with their episode or with the fragment, and have `next_obs`, the lane `B` as "agent_index" and, of a
    recurrent model, "state_out_0" ….
    """
    steps, lanes = fragment.valid.shape
    placed = fragment.copy()
    placed["agent_index"] = torch.arange(lanes).expand(steps, lanes)
    for name, state in fragment.get("state_in", sample_batch.SampleBatch()).items():
        placed[f"state_out_{name}"] = state[1:]
    rows = SampleBatch.of(transition_rows(placed).numpy())
    ended = (rows.terminated | rows.truncated)[:-1] | (np.diff(rows["agent_index"]) != 0)
    edges = [0, *(np.flatnonzero(ended) + 1).tolist(), rows.count]
    return [rows[start:stop].map(np.copy) for start, stop in pairwise(edges) if stop > start]


def tensor_rows(rows: BatchT, device: torch.device | str = "cpu") -> BatchT:
    """Rows `[N, …]` of arrays, perhaps made by hand, as the tensors that a policy learns from.

    Columns of Python objects ("infos") are left out, float64 becomes float32, "dones" without "truncateds" are
    terminations, and "state_in_0" … become `state_in`.
    """
    states = [name for name in rows if name.startswith("state_in_")]
    objects = [name for name in rows if getattr(rows[name], "dtype", None) == np.dtype(object)]
    kept = dict(rows.without(*objects, *states).items())
    if states:
        kept["state_in"] = {name.removeprefix("state_in_"): rows[name] for name in states}
    found = type(rows)(kept).map(lambda column: _tensor(column, torch.device(device)))
    if "terminated" in found:
        found["terminated"] = found["terminated"].bool()
        found["truncated"] = found.get("truncated", torch.zeros_like(found["terminated"]))
    return found


def fragment_of_trajectory(trajectory: sample_batch.SampleBatch) -> sample_batch.SampleBatch:
    """One trajectory, rows `[n, …]` of `trajectories` or made by hand, as a fragment `[n, 1, …]` of tensors."""
    columns = tensor_rows(sample_batch.SampleBatch(dict(trajectory.items())))
    states = [name for name in columns if name.startswith("state_out_")]
    last = {
        "obs": columns.next_obs,
        "state_in": sample_batch.SampleBatch({name.removeprefix("state_out_"): columns[name] for name in states}),
        "prev_obs": columns.obs,
        "prev_actions": columns.actions,
        "prev_rewards": columns.rewards,
    }
    fragment = columns.without("next_obs", *states)
    for name in sample_batch.STEP_INPUTS:
        if name in columns:
            fragment[name] = concat_samples([columns.select(name), _only(name, _last(columns[name], last[name]))])[name]
    fragment["valid"] = torch.ones(trajectory.count, dtype=torch.bool)
    return fragment.map(lambda column: column.unsqueeze(1))


def _last(before: Any, newest: Any) -> Any:
    """The entry after the last row of `before`: the newest one, or where these are windows, the next window."""
    if isinstance(before, sample_batch.SampleBatch):
        return sample_batch.SampleBatch({name: _last(before[name], newest[name]) for name in before})
    if before.ndim == newest.ndim:
        return newest[-1:].to(before.dtype)
    return torch.cat([before[-1:, 1:], newest[-1:].unsqueeze(1).to(before.dtype)], dim=1)


def _only(name: str, column: Any) -> sample_batch.SampleBatch:
    return sample_batch.SampleBatch({name: column})


def postprocess_trajectories(
    policy: Any,
    function: Callable[..., Any],
    fragment: sample_batch.SampleBatch,
    others: Mapping[str, tuple[Any, sample_batch.SampleBatch]] | None,
) -> sample_batch.SampleBatch:
    """The rows `[N, …]` to learn from: what `function(trajectory, other_agent_batches, episode)` returns, joined.

    Args:
        policy: whose fragment it is; with a recurrent model the rows are cut into its sequences.
        function: gets numpy arrays, with "infos" and the `Episode` if a worker of this process played it, and may
            return arrays or tensors, of any number of rows.
        fragment: `[T, B, …]`.
        others: policy id → (policy, its fragment), `None` with a single agent. The function gets (policy, trajectory)
            of each other agent in the episode, by the policy's id, or "id_1", … if several have it.

    Raises:
        ConfigError: the function did not return a batch.
    """
    done: list[sample_batch.SampleBatch] = []
    asked = getattr(policy, "view_requirements", None) or default_requirements()
    fragment = add_views(asked, fragment, policy.model, policy.action_transform.policy_space)
    beside = {name: (other, trajectories(part)) for name, (other, part) in (others or {}).items()}
    records = getattr(policy, "episode_records", None) or EpisodeRecords()
    for trajectory in trajectories(fragment):
        eps_id = int(trajectory["eps_id"][0])
        agent = records.agent(policy.policy_id, int(trajectory["agent_index"][0]))
        infos = records.infos(eps_id, agent, trajectory["env_t" if "env_t" in trajectory else "t"].tolist())
        if infos is not None:
            trajectory["infos"] = infos
        same = None if others is None else _same_episode(trajectory, policy, beside)
        result = function(trajectory, same, records.episode(eps_id))
        if not isinstance(result, sample_batch.SampleBatch):
            raise ConfigError(
                f"{type(policy).__name__}: the function of postprocessing returned {short_repr(result)}; expected the "
                "SampleBatch that it got, with more columns"
            )
        rows = SampleBatch.of(result.without("infos")).map(lambda column: _tensor(column, fragment.rewards.device))
        done.append(_sequences(rows, policy.max_seq_len) if policy.is_recurrent else rows)
    return concat_samples(done)


def change_trajectories(
    policy: Any, rows: sample_batch.SampleBatch, fragment: sample_batch.SampleBatch, change: Callable[..., Any]
) -> None:
    """Let a function change the rows to learn from, one trajectory at a time.

    Args:
        policy: whose fragment it is.
        rows: `[N, …]` in the order of `policy.flatten_fragment`, or a fragment as a replay buffer stores it; columns
            that the function changes or adds are replaced. If the policy made other rows of the fragment, they cannot
            be told apart, and the function is called once with all of them and the whole fragment.
        fragment: `[T, B, …]` that they were made of.
        change: called with the rows `[n, …]` of a trajectory, of numpy arrays, and that trajectory of the fragment.
    """
    steps, lanes = fragment.valid.shape
    placed = fragment.copy()
    placed["place"] = torch.arange(steps * lanes).view(steps, lanes)
    stored = isinstance(typed(rows), Fragment)
    order = placed["place"].flatten() if stored else policy.flatten_fragment(placed)["place"]
    if not stored and len(order) != rows.count:
        change(SampleBatch.of(rows), SampleBatch.of(fragment))
        return
    row_of = torch.zeros(steps * lanes, dtype=torch.long).index_copy_(0, order, torch.arange(len(order)))
    seen = SampleBatch.of(rows.without(*PER_SEQUENCE))
    changed: dict[str, Any] = {}
    for trajectory in trajectories(placed):
        row = row_of[torch.from_numpy(trajectory["place"])]
        index = (row // lanes, row % lanes) if stored else (row,)
        before = seen.map(lambda column, index=index: column[index].numpy(force=True))
        part = before.map(np.copy)
        change(part, trajectory.without("place"))
        for name, column in part.items():
            if name not in before or _differ(before[name], column):
                if name not in changed:
                    changed[name] = _clone(rows[name]) if name in before else _zeros(column, rows)
                _assign(changed[name], index, column)
    for name, column in changed.items():
        rows[name] = column


def postprocess_stored(policy: Any, stored: sample_batch.SampleBatch, fragment: sample_batch.SampleBatch) -> None:
    """Let a replay policy's own postprocessing in RLlib's form change what its buffer stores.

    It gets one trajectory at a time; columns that the buffer does not have are left out.

    Args:
        policy: whose method or function it is; without one, nothing changes.
        stored: the fragment that the buffer gets.
        fragment: that of the worker.

    Raises:
        ConfigError: it returned another number of rows.
    """
    function = getattr(policy, "hooks", {}).get("postprocess_fn")
    if function is not None and takes_episode(function, 3):
        function = partial(function, policy)
    elif getattr(policy, "reads_trajectories", False):
        function = policy.postprocess_trajectory
    else:
        return
    records = getattr(policy, "episode_records", None) or EpisodeRecords()

    def change(rows: SampleBatch, trajectory: SampleBatch) -> None:
        episode = records.episode(int(trajectory["eps_id"][0])) if "eps_id" in trajectory else None
        given = trajectory.copy()
        given.update({name: rows[name] for name in rows if name in trajectory})
        result = function(given, None, episode)
        if result.count != trajectory.count:
            raise ConfigError(
                f"{type(policy).__name__}: postprocessing made {result.count} rows of {trajectory.count}; a replay "
                "buffer stores them all: set their rewards, or leave rows out in the loss"
            )
        rows.update({name: result[name] for name in rows if name in trajectory})

    change_trajectories(policy, stored, fragment, change)


def played_rows(samples: sample_batch.AnyBatch) -> sample_batch.AnyBatch:
    """The experience of a sample's fragments as rows, before it is postprocessed."""
    return samples.as_multi_agent().map_batches(transition_rows)


def change_fragment(fragment: sample_batch.SampleBatch, rows: sample_batch.SampleBatch) -> None:
    """Take columns of `played_rows` that were changed or added into their fragment.

    Raises:
        ConfigError: there are more or fewer rows than before.
    """
    steps = len(fragment.valid)
    place = fragment.valid.T.flatten().nonzero().squeeze(1)
    if rows.count != len(place):
        raise ConfigError(
            f"on_sample_end: {rows.count} rows in place of {len(place)}; expected as many: change columns, or leave "
            "rows out in postprocess_trajectory"
        )
    before, index = transition_rows(fragment).numpy(), (place % steps, place // steps)
    changed = {name: column for name, column in rows.items() if name not in before or _differ(before[name], column)}
    for own in ("next_obs", "obs"):  # an observation is the next one of the row before
        if own in changed:
            column = _clone(fragment["obs"])
            _assign(column, (index[0] + (own == "next_obs"), index[1]), changed.pop(own))
            fragment["obs"] = column
    for name, column in changed.items():
        if name not in before:
            fragment[name] = _zeros(column, fragment)
        found = _clone(fragment[name])
        _assign(found, index, column)
        fragment[name] = found


def _same_episode(
    trajectory: SampleBatch, policy: Any, others: Mapping[str, tuple[Any, list[SampleBatch]]]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (other, parts) in others.items():
        own = trajectory["agent_index"][0] if other is policy else -1
        same = [each for each in parts if each.eps_id[0] == trajectory.eps_id[0] and each["agent_index"][0] != own]
        found |= {name if number == 0 else f"{name}_{number}": (other, each) for number, each in enumerate(same)}
    return found


def _zeros(column: Any, rows: sample_batch.SampleBatch) -> torch.Tensor:
    """A new column of all rows, of the width and kind of a trajectory's."""
    some = _tensor(column, rows.rewards.device)
    return some.new_zeros((*rows.rewards.shape, *some.shape[1:]))


def _clone(column: Any) -> Any:
    return column.map(torch.clone) if isinstance(column, sample_batch.SampleBatch) else column.clone()


def _differ(one: Any, other: Any) -> bool:
    if isinstance(one, sample_batch.SampleBatch):
        return any(_differ(one[name], other[name]) for name in one)
    return not np.array_equal(one, other)


def _assign(column: Any, index: Any, value: Any) -> None:
    if isinstance(column, sample_batch.SampleBatch):
        for name in column:
            _assign(column[name], index, value[name])
    else:
        column[index] = torch.as_tensor(value, device=column.device).to(column.dtype)


def _tensor(column: Any, device: torch.device) -> torch.Tensor:
    tensor = torch.as_tensor(column, device=device)
    return tensor.float() if tensor.dtype == torch.float64 else tensor


def _sequences(rows: SampleBatch, max_seq_len: int) -> SampleBatch:
    """The rows of a trajectory with "seq_lens", and "state_in" before each sequence only."""
    starts = torch.arange(0, rows.count, max_seq_len)
    sequences = rows.without(*(name for name in rows if name.startswith(("state_in", "state_out_"))))
    sequences["state_in"] = rows["state_in"][starts]
    sequences["seq_lens"] = torch.full_like(starts, max_seq_len)
    sequences["seq_lens"][-1] = rows.count - starts[-1]
    return sequences
