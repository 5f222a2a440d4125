"""RLlib's batches of experience: the package's own, whose columns also have RLlib's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch

from lightning_rl import sample_batch
from lightning_rl.sample_batch import DEFAULT_POLICY as DEFAULT_POLICY_ID
from lightning_rl.sample_batch import PER_SEQUENCE, Fragment, map_leaves, typed

__all__ = ["DEFAULT_POLICY_ID", "OWN_NAMES", "MultiAgentBatch", "SampleBatch", "classic_batch", "concat_samples"]

OWN_NAMES = {
    "dones": "terminated",
    "new_obs": "next_obs",
    "terminateds": "terminated",
    "truncateds": "truncated",
}
"""RLlib's names of columns that have another one here."""


class BatchMethods:
    """RLlib's methods that batches of one policy and of several have alike."""

    __slots__ = ()

    def to_device(self: Any, device: torch.device | str, framework: str = "torch") -> Any:
        """As `to`."""
        return self.to(device)

    def compress(self, bulk: bool = False, columns: Iterable[str] = ("obs", "new_obs")) -> Self:
        """The batch itself: nothing is compressed here."""
        return self

    def decompress_if_needed(self, columns: Iterable[str] = ("obs", "new_obs")) -> Self:
        """The batch itself: nothing is compressed here."""
        return self

    def size_bytes(self: Any) -> int:
        """Bytes of all columns."""
        return self.nbytes


class SampleBatch(BatchMethods, sample_batch.SampleBatch):
    """A batch whose columns are found by RLlib's names and by this package's; the constants are RLlib's names.

    "dones" is `terminated`: an episode that a time limit cuts is not done, so its last value is bootstrapped.
    "weights" are 1 where rows were not drawn by priority, and "action_prob" is computed of "action_logp".
    "state_in_0" is the first part of the recurrent state `state_in`, and "new_obs" of a fragment are the observations
    after its steps. Lists become arrays.
    """

    __slots__ = ()

    CUR_OBS = OBS = "obs"
    NEXT_OBS = "new_obs"
    ACTIONS = "actions"
    REWARDS = "rewards"
    PREV_ACTIONS = "prev_actions"
    PREV_REWARDS = "prev_rewards"
    DONES = "dones"
    TERMINATEDS = "terminateds"
    TRUNCATEDS = "truncateds"
    INFOS = "infos"
    SEQ_LENS = "seq_lens"
    T = "t"
    ACTION_DIST_INPUTS = "action_dist_inputs"
    ACTION_PROB = "action_prob"
    ACTION_LOGP = "action_logp"
    ACTION_DIST = "action_dist"
    VF_PREDS = "vf_preds"
    EPS_ID = "eps_id"
    ENV_ID = "env_id"
    AGENT_INDEX = "agent_index"
    UNROLL_ID = "unroll_id"
    VALUES_BOOTSTRAPPED = "values_bootstrapped"

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(OWN_NAMES.get(name, name))

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, str):
            return super().__getitem__(index)
        if index.startswith("state_in_") and super().__contains__("state_in"):
            return super().__getitem__("state_in")[index.removeprefix("state_in_")]
        if index == "new_obs" and self._has_next_obs():
            return map_leaves(lambda leaf: leaf[1:], self["obs"])
        if index == "weights" and index not in self:  # rows that were drawn uniformly
            return self["rewards"] * 0 + 1
        if index == "action_prob" and index not in self:
            return (
                np.exp(self["action_logp"])
                if isinstance(self["action_logp"], np.ndarray)
                else self["action_logp"].exp()
            )
        return super().__getitem__(OWN_NAMES.get(index, index))

    def __setitem__(self, name: str, value: Any) -> None:
        value = np.asarray(value) if isinstance(value, list) else value
        super().__setitem__(OWN_NAMES.get(name, name), value)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(OWN_NAMES.get(name, name))

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str) and name.startswith("state_in_") and super().__contains__("state_in"):
            return name.removeprefix("state_in_") in super().__getitem__("state_in")
        if name == "new_obs" and self._has_next_obs():
            return True
        return super().__contains__(OWN_NAMES.get(name, name) if isinstance(name, str) else name)

    @property
    def count(self) -> int:
        """Rows of experience, of a fragment those without resets of all its lanes."""
        return sample_batch.env_steps(self) if isinstance(typed(self), Fragment) else super().count

    def _has_next_obs(self) -> bool:
        """Whether it is a fragment, whose observations have one row more."""
        return (
            not super().__contains__("next_obs") and super().__contains__("obs") and isinstance(typed(self), Fragment)
        )

    def get(self, name: str, default: Any = None) -> Any:
        """Column of that name, or `default`."""
        return self[name] if name in self else default  # noqa: SIM401

    def keys(self) -> list[str]:
        """Names of the columns, this package's."""
        return list(self)

    def values(self) -> list[Any]:
        """The columns."""
        return [column for _, column in self.items()]

    def pop(self, name: str, *default: Any) -> Any:
        """Take a column out; `default`, if one is given, where there is none."""
        if name not in self and default:
            return default[0]
        column = self[name]
        del self[name]
        return column

    def update(self, other: Mapping[str, Any] | sample_batch.SampleBatch | None = None, /, **named: Any) -> None:
        """Set columns, as a dict."""
        for name, column in (*(other or {}).items(), *named.items()):
            self[name] = column

    def columns(self, keys: Sequence[str]) -> list[Any]:  # type: ignore[override]
        """The columns of these names."""
        return [self[name] for name in keys]

    def copy(self, shallow: bool = False) -> Self:
        """A new batch, of copies of the arrays unless it is `shallow`."""
        return type(self)(self._columns) if shallow else self.map(_copy)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each row as a dict of its entries, by this package's names."""
        for index in range(self.count):
            yield dict(self[index].items())

    def slice(self, start: int, end: int) -> Self:
        """The rows from `start` to before `end`."""
        return self[start:end]

    def concat(self, other: sample_batch.SampleBatch) -> Any:
        """These rows and then those of the other batch."""
        return concat_samples([self, other])

    def split_by_episode(self, key: str | None = None) -> list[Self]:  # type: ignore[override]
        """The rows as one batch per episode: split where "eps_id" changes, and after each end.

        Args:
            key: "eps_id" or "dones": split by that column only.

        Raises:
            KeyError: there is no such column, or neither "eps_id" nor "dones".
            ValueError: it is a fragment.
        """
        if isinstance(typed(self), Fragment):
            raise ValueError(
                "split_by_episode got a fragment [T, lanes, …]; expected rows: policy.postprocess_trajectory(fragment) "
                "gives them, as does a RolloutWorker that is made of a policy's class"
            )
        by_id = key == "eps_id" or (key is None and "eps_id" in self)
        edges = {0, self.count}
        if by_id:
            edges |= {*(np.flatnonzero(np.diff(_array(self["eps_id"]))) + 1).tolist()}
        if key != "eps_id" and (not by_id or "dones" in self):
            edges |= {*(np.flatnonzero(self._ends()) + 1).tolist()}
        return [self[start:stop] for start, stop in pairwise(sorted(edges))]

    def is_single_trajectory(self) -> bool:
        """Whether no episode ends before the last row."""
        return not self._ends()[:-1].any()

    def _ends(self) -> np.ndarray:
        ends = _array(self["dones"]).astype(bool)
        return ends | _array(self["truncateds"]) if "truncateds" in self else ends

    def right_zero_pad(self, max_seq_len: int, exclude_states: bool = True) -> Self:
        """Pad each sequence of "seq_lens" with zeros to `max_seq_len` rows, in this batch, which is returned.

        Args:
            max_seq_len: rows of each sequence, at least as many as the longest has.
            exclude_states: not read: recurrent states have one entry per sequence here.
        """
        lengths = _array(self["seq_lens"]).tolist()
        place = np.concatenate([start * max_seq_len + np.arange(length) for start, length in enumerate(lengths)])

        def padded(leaf: Any) -> Any:
            shape = (len(lengths) * max_seq_len, *leaf.shape[1:])
            out = leaf.new_zeros(shape) if isinstance(leaf, torch.Tensor) else np.zeros(shape, leaf.dtype)
            out[place] = leaf
            return out

        for name in self:
            if name not in PER_SEQUENCE and not name.startswith("state_"):
                self[name] = map_leaves(padded, self[name])
        return self

    def set_get_interceptor(self, fn: Callable[[Any], Any] | None) -> None:
        """Nothing: columns are what a policy learns from, or arrays."""

    @property
    def policy_batches(self) -> dict[str, Self]:
        """As a `MultiAgentBatch` of the one policy."""
        return {DEFAULT_POLICY_ID: self}

    def env_steps(self) -> int:
        """Environment steps in the batch."""
        return sample_batch.env_steps(self)

    agent_steps = env_steps

    def as_multi_agent(self) -> MultiAgentBatch:  # type: ignore[override]
        """The same as the batch of one policy."""
        return MultiAgentBatch({sample_batch.DEFAULT_POLICY: self}, self.env_steps())


class Steps(int):
    """A number of steps, which this package reads as an attribute and RLlib as a method."""

    def __call__(self) -> int:
        """The number."""
        return int(self)


class MultiAgentBatch(BatchMethods, sample_batch.MultiAgentBatch):
    """Batches of several policies by RLlib's names; `env_steps` and `agent_steps` are numbers and methods.

    Args: as `lightning_rl.sample_batch.MultiAgentBatch`.
    """

    __slots__ = ()

    def __init__(
        self, policy_batches: Mapping[str, sample_batch.SampleBatch], env_steps: int, num_envs: int | None = None
    ) -> None:
        super().__init__(policy_batches, Steps(env_steps), num_envs)

    @property
    def agent_steps(self) -> Steps:
        """Rows of experience over all policies."""
        return Steps(sum(part.count for part in map(classic_batch, self.policy_batches.values())))

    def map_batches(self, fn: Callable[[Any], Any]) -> MultiAgentBatch:
        """A batch with `fn` applied to the rows of every policy."""
        return classic_batch(super().map_batches(fn))

    def timeslices(self, k: int) -> list[MultiAgentBatch]:  # type: ignore[override]
        """Parts of `k` environment steps, in order; see `lightning_rl.sample_batch.MultiAgentBatch.timeslices`."""
        return [*map(classic_batch, super().timeslices(k))]


def classic_batch(batch: Any) -> Any:
    """A batch of one policy or several under RLlib's names; both share their columns."""
    if isinstance(batch, sample_batch.MultiAgentBatch):
        parts = {name: classic_batch(part) for name, part in batch.items()}
        return MultiAgentBatch(parts, batch.env_steps, batch.num_envs)
    return batch if isinstance(batch, SampleBatch) else SampleBatch.of(batch)


def concat_samples(batches: Sequence[Any], dim: int | None = None) -> Any:
    """Join batches in the given order; see `lightning_rl.sample_batch.concat_samples`."""
    return classic_batch(sample_batch.concat_samples(batches, dim))


def _copy(column: Any) -> Any:
    return column.clone() if isinstance(column, torch.Tensor) else np.copy(column)


def _array(column: Any) -> np.ndarray:
    return column.numpy(force=True) if isinstance(column, torch.Tensor) else np.asarray(column)
