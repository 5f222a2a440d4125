"""Samples as RLlib's programs see them: rows `[N, …]`, which are made of a worker's fragments when they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lightning_rl import sample_batch
from lightning_rl.rllib.sample_batch import MultiAgentBatch, SampleBatch, classic_batch
from lightning_rl.rllib.trajectories import tensor_rows
from lightning_rl.sample_batch import DEFAULT_POLICY, AnyBatch, Fragment, env_steps, map_leaves, typed

__all__ = ["SampledBatch", "as_collected", "count_steps", "join_samples", "rows_of_lanes", "rows_when_read"]

MakeRows = Callable[[AnyBatch], AnyBatch]


class SampledBatch(SampleBatch):
    """The rows of a policy in a sample, arrays; until a column is read or set, a fragment that operators pass on.

    Attributes:
        fragment: the fragment `[T, B, …]`; `None` once the rows are made, which then take its place.
        make_rows: makes the rows of a sample's fragments.
    """

    fragment: sample_batch.SampleBatch | None

    __slots__ = ("_read", "_rows", "fragment", "make_rows")

    @property
    def _columns(self) -> dict[str, Any]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        if self.fragment is not None:
            self._read()
        return self._rows

    @_columns.setter
    def _columns(self, columns: dict[str, Any]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.fragment, self._rows = None, columns

    @property
    def count(self) -> int:
        """Rows of experience."""
        return super().count if self.fragment is None else env_steps(self.fragment)

    def env_steps(self) -> int:
        """Environment steps in the batch."""
        return self.count

    agent_steps = env_steps

    def as_multi_agent(self) -> MultiAgentBatch:
        """The same rows as those of the one policy."""
        return MultiAgentBatch({DEFAULT_POLICY: self}, self.count)


def rows_when_read(samples: AnyBatch, make_rows: MakeRows) -> Any:
    """A sample of fragments `[T, B, …]` as a batch of rows, all of which are made when one is read.

    Args:
        samples: a fragment, or those of several policies; rows, of workers that postprocess, stay as they are.
        make_rows: makes the rows of them.
    """
    if not all(isinstance(typed(part), Fragment) for _, part in samples.as_multi_agent().items()):
        return classic_batch(samples)
    parts: dict[str, SampledBatch] = {}

    def read() -> None:
        rows = make_rows(samples).as_multi_agent()
        for name, part in parts.items():
            part._columns = dict(rows[name].numpy().items())

    for name, fragment in samples.as_multi_agent().items():
        parts[name] = SampledBatch()
        parts[name].fragment, parts[name].make_rows, parts[name]._read = fragment, make_rows, read
    if isinstance(samples, sample_batch.MultiAgentBatch):
        return MultiAgentBatch(parts, samples.env_steps, samples.num_envs)
    return parts[DEFAULT_POLICY]


def as_collected(batch: Any) -> Any:
    """What the package's operators take: the fragments of a sample that was not read, or the rows as tensors."""
    if isinstance(batch, sample_batch.MultiAgentBatch):
        parts = {name: as_collected(part) for name, part in batch.items()}
        return sample_batch.MultiAgentBatch(parts, int(batch.env_steps), batch.num_envs)
    if not isinstance(batch, SampledBatch):
        return batch
    return tensor_rows(SampleBatch.of(batch)) if batch.fragment is None else batch.fragment


def count_steps(batch: Any) -> int:
    """Rows of experience; of several policies: environment steps."""
    return batch.count if isinstance(batch, SampledBatch) else env_steps(batch)


def join_samples(batches: list[Any]) -> Any:
    """Batches joined in the given order; samples that were not read stay fragments."""
    parts = [part for batch in batches for _, part in batch.as_multi_agent().items()]
    if all(isinstance(part, SampledBatch) and part.fragment is not None for part in parts):
        return rows_when_read(sample_batch.concat_samples([*map(as_collected, batches)]), parts[0].make_rows)
    joined = sample_batch.concat_samples(batches)
    if isinstance(joined, sample_batch.MultiAgentBatch):
        return MultiAgentBatch(dict(joined.items()), joined.env_steps, joined.num_envs)
    return joined


def rows_of_lanes(worker: Any, samples: AnyBatch) -> AnyBatch:
    """The rows `[N, …]` that each policy of a worker learns from, of one lane after the other, with "next_obs".

    Rows of recurrent policies are in the order of their sequences.

    Args:
        worker: has the policies.
        samples: a sample of fragments.
    """

    def placed(policy_id: str, fragment: sample_batch.SampleBatch) -> sample_batch.SampleBatch:
        found, (steps, lanes) = fragment.copy(), fragment.valid.shape
        found["lane"] = torch.arange(lanes, device=fragment.valid.device).repeat(steps, 1)
        if "eps_id" not in found:  # the worker has not numbered its episodes: number those of the sample
            ended = (fragment.terminated | fragment.truncated).long()
            found["eps_id"] = (ended.cumsum(0) - ended) * lanes + found["lane"]
        if not worker.policies[policy_id].off_policy:
            found["next_obs"] = map_leaves(lambda leaf: leaf[1:], fragment.obs)
        return found

    parts = {name: placed(name, part) for name, part in samples.as_multi_agent().items()}
    if isinstance(samples, sample_batch.MultiAgentBatch):
        several = sample_batch.MultiAgentBatch(parts, samples.env_steps, samples.num_envs)
        return worker.rows_of(several).map_batches(_by_lane)
    return _by_lane(worker.rows_of(parts[DEFAULT_POLICY]))


def _by_lane(rows: sample_batch.SampleBatch) -> sample_batch.SampleBatch:
    if "lane" in rows and "seq_lens" not in rows:
        rows = rows[torch.argsort(rows["lane"], stable=True)]
    return rows.without("lane")
