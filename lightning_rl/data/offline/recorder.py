"""Records the experience of a rollout worker as shards of whole episodes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from lightning_rl.data.offline.shards import require, write_shard
from lightning_rl.data.offline.steps import DataSpec, Steps, join
from lightning_rl.errors import short_repr
from lightning_rl.replay.columns import leaves_of
from lightning_rl.run_directory.atomic import check_writable
from lightning_rl.sample_batch import AnyBatch, MultiAgentBatch, SampleBatch
from lightning_rl.spaces import leaf_spaces
from lightning_rl.spaces.support import is_continuous
from lightning_rl.version import __version__

__all__ = ["RECORDED", "Recorder", "digest_of"]

RECORDED = ("obs", "actions", "rewards", "terminated", "truncated", "valid", "t", "action_logp", "action_mask")
"""Columns of a fragment that are recorded, if it has them."""
ROWS_AT_ONCE = 4096  # fragments may be single steps, whose rows are cheaper to sort together
SHARD_BYTES = 32 * 2**20  # of a shard's columns before compression
SECONDS = 30.0  # after which a shard is written whatever its size, so that a killed run leaves most of its experience


class Recorder:
    """Writes the fragments of the workers that call its hooks to DIRECTORY (with several policies to DIRECTORY/POLICY).

    Episodes are kept together: a shard holds what belongs to an episode from its first step to its last one. An episode
    is cut, and ends without `terminated` or `truncated`, where its environment is reset, where recording stops, and
    where it alone exceeds the size of a shard.

    Args:
        directory: is made with the first shard; shards that are there are kept.

    Raises:
        ConfigError: pyarrow is not installed, or nothing can be written there.
    """

    def __init__(self, directory: str | Path) -> None:
        require("pyarrow", "data.output")
        check_writable(f"data.output={short_repr(str(directory))}", directory)
        self.directory = Path(directory)
        self._streams: dict[tuple[int, str], Stream] = {}  # by worker and policy

    def on_sample_end(self, *, worker: Any, samples: AnyBatch) -> None:
        """Record a fragment."""
        several = isinstance(samples, MultiAgentBatch)
        for policy_id, fragment in samples.as_multi_agent().items():
            key = (worker.worker_index, policy_id)
            if key not in self._streams:
                directory = self.directory / policy_id if several else self.directory
                self._streams[key] = Stream(directory, worker, policy_id)
            self._streams[key].add(fragment)

    def on_worker_stop(self, *, worker: Any) -> None:
        """Write what is left of a worker's experience; running episodes are cut."""
        for (worker_index, _), stream in self._streams.items():
            if worker_index == worker.worker_index:
                stream.close()


class Stream:
    """The episodes of one policy in a worker: sorts rows by environment, and writes shards.

    Args:
        directory: the directory of the shards.
        worker: a `RolloutWorker`.
        policy_id: the id of the policy in the worker.
    """

    def __init__(self, directory: Path, worker: Any, policy_id: str) -> None:
        self.directory, self.worker = directory, worker
        self.policy = worker.get_policy(policy_id)
        # Without exploration, discrete actions have probability 1, and continuous ones no density.
        self._takes_best = self.policy.has_model and not worker.explore
        no_density = self._takes_best and any(is_continuous(leaf) for _, leaf in leaf_spaces(self.policy.action_space))
        self._recorded = [name for name in RECORDED if not (no_density and name == "action_logp")]
        written = list(directory.glob(f"worker{worker.worker_index:03}-*.parquet")) if directory.exists() else []
        self._number, self._written_at = len(written), time.monotonic()
        self._fragments: list[SampleBatch] = []  # not sorted yet
        self._rows = 0
        self._running: dict[int, list[Steps]] = {}  # by environment: parts of the episode that has not ended
        self._next_t: dict[int, int] = {}  # the `t` that continues it
        self._ended: list[Steps] = []
        self._row_bytes = 0

    def add(self, fragment: SampleBatch) -> None:
        """Take a fragment `[T, B, …]`."""
        self._fragments.append(fragment)
        self._rows += fragment.valid.numel()
        if self._rows >= max(ROWS_AT_ONCE, 16 * fragment.valid.shape[1]):
            self._sort()
            held = sum(map(len, self._ended)) * self._row_bytes
            if held >= SHARD_BYTES or time.monotonic() - self._written_at > SECONDS:
                self._write()

    def close(self) -> None:
        """Write everything, and cut the running episodes."""
        self._sort()
        for env in list(self._running):
            self._cut(env)
        self._write()

    def _sort(self) -> None:
        """Append the rows of the held fragments to the episodes of their environments."""
        if not self._fragments:
            return
        columns = [leaves_of(fragment, self._recorded) for fragment in self._fragments]
        # A fragment's observations have a row more than its steps: `rows` finds each step among them.
        ends = np.cumsum([len(fragment.valid) + 1 for fragment in self._fragments])
        rows = np.delete(np.arange(ends[-1]), ends - 1)
        self._fragments, self._rows = [], 0
        joined = {path: np.concatenate([each[path] for each in columns]) for path in columns[0]}
        valid = joined[("valid",)]
        env, step = np.nonzero(valid.T)
        if not len(env):
            return
        own = {path: column[rows[step] if path[0] == "obs" else step, env] for path, column in joined.items()}
        final = {path: column[rows[step] + 1, env] for path, column in joined.items() if path[0] == "obs"}
        if self._takes_best and ("action_logp",) in own:
            own[("action_logp",)][:] = 0.0
        ends, t, first = own[("terminated",)] | own[("truncated",)], own[("t",)], np.diff(env, prepend=-1) > 0
        due = np.where(np.roll(ends, 1), 0, np.roll(t, 1) + 1)
        due[first] = [self._next_t.get(each, 0) for each in env[first].tolist()]
        begins = t != due  # an episode whose predecessor has not ended: the environment was reset
        own[("valid",)][np.flatnonzero(begins & ~first & ~np.roll(ends, 1)) - 1] = False
        last = np.append(first[1:], True)
        self._next_t |= zip(env[last].tolist(), np.where(ends, 0, t + 1)[last].tolist(), strict=True)
        for cut in env[first & begins].tolist():
            self._cut(cut)
        self._split(np.insert(env, np.flatnonzero(ends) + 1, env[ends]), self._closed(own, final, ends))

    def _closed(self, own: Mapping[Any, np.ndarray], final: Mapping[Any, np.ndarray], ends: np.ndarray) -> Steps:
        """The steps with a closing row after each that ends an episode, which holds the observation after it."""
        after, closed = np.flatnonzero(ends) + 1, {}
        for path, column in own.items():
            closing = final[path][ends] if path in final else path == ("action_mask",)
            closed[path] = np.insert(column, after, closing, axis=0)
        return Steps(closed)

    def _split(self, env: np.ndarray, steps: Steps) -> None:
        """Append each environment's steps to its running episode; what is closed is ready to be written."""
        self._row_bytes = steps.nbytes // len(steps)
        starts = np.flatnonzero(np.diff(env, prepend=-1) > 0).tolist()
        closing = steps.closing_rows
        for start, stop in pairwise([*starts, len(env)]):
            number, running = int(env[start]), self._running.setdefault(int(env[start]), [])
            ended = closing[np.searchsorted(closing, start) : np.searchsorted(closing, stop)]
            middle = int(ended[-1]) + 1 if len(ended) else start
            if middle > start:
                self._ended += [*running, steps[start:middle]]
                running.clear()
            if middle < stop:
                running.append(steps[middle:stop])
            if sum(map(len, running)) * self._row_bytes > SHARD_BYTES:
                last = running[-1][-1:]
                self._cut(number)
                self._running[number] = [last]

    def _cut(self, env: int) -> None:
        """End the running episode, if there is one: its last row becomes the closing row."""
        if parts := self._running.pop(env, None):
            last = dict(parts[-1].columns)
            last[("valid",)] = last[("valid",)].copy()
            last[("valid",)][-1] = False
            self._ended += [*parts[:-1], Steps(last)]

    def _write(self) -> None:
        self._written_at = time.monotonic()
        if self._ended:
            stem = f"worker{self.worker.worker_index:03}-{self._number:05}"
            # Policies without a model act in the environment's space.
            acted_with = self.policy.action_transform.options if self.policy.has_model else None
            write_shard(self.directory, stem, Steps(join(self._ended).columns, acted_with), self._spec())
            self._ended, self._number = [], self._number + 1

    def _spec(self) -> DataSpec:
        policy, worker = self.policy, self.worker
        about = {
            "env": worker.env_creator.name,
            "seed": worker.seed,
            "policy": type(policy).__name__,
            "policy_digest": digest_of(policy),
            "policy_env_steps": int(policy.env_steps),
            "explore": worker.explore,
            "versions": {"lightning_rl": __version__, "gymnasium": gymnasium.__version__, "torch": torch.__version__},
        }
        return DataSpec(policy.observation_space, policy.action_space, about)


def digest_of(policy: Any) -> str:
    """A digest of the weights of a policy."""
    weights = b"".join(
        value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
        for value in policy.state_dict().values()
        if isinstance(value, torch.Tensor)
    )
    return hashlib.blake2b(weights, digest_size=8).hexdigest()
