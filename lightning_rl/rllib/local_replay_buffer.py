"""Replay in one object for loops written by hand and for replay actors: a ring for each policy, RLlib's verbs."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Self

import torch

from lightning_rl.errors import ConfigError, check_at_least_one, did_you_mean
from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.replay.prioritized import PrioritizedReplayBuffer
from lightning_rl.replay.sequences import PrioritizedSequenceReplayBuffer, SequenceReplayBuffer
from lightning_rl.rllib.row_fragments import fragment_of_rows
from lightning_rl.rllib.sample_batch import classic_batch
from lightning_rl.rllib.sampled_batch import as_collected
from lightning_rl.sample_batch import Fragment, MultiAgentBatch, SampleBatch, env_steps, typed

__all__ = ["DEFAULT_POLICY", "LocalReplayBuffer", "TrainerReplayBuffer", "call_buffer"]

DEFAULT_POLICY = "default_policy"
MODES = ("independent", "lockstep")
STATS = {"rows": "num_entries", "added": "added_count", "bytes": "est_size_bytes"}  # the names of RLlib's buffers
plan_policies: ContextVar[Mapping[str, tuple[Any, Mapping[str, Any]]]] = ContextVar(
    "plan_policies", default=MappingProxyType({})
)
"""The policies of the execution plan that runs, and their keys: rings make the n-step sums, and `n_step` is a key."""


class LocalReplayBuffer:
    """`add_batch`, `replay`, `update_priorities`. Each policy has its own ring, made when its first rows come.

    Args:
        num_shards: how many such buffers share the work; each holds and waits for its part of rows.
        learning_starts: environment steps, over all shards, before `replay` gives anything.
        buffer_size: rows a policy, over all shards.
        replay_batch_size: rows of a batch; of sequences, as many as make about that many rows.
        prioritized_replay_alpha: 0 draws uniformly; else as `PrioritizedReplayBuffer`, like beta and eps.
        replay_mode: "independent" draws for each policy by itself, "lockstep" the same environment steps for all of
            them, uniformly.
        replay_sequence_length: more than 1 replays stretches of episodes (`SequenceReplayBuffer`).
        replay_burn_in: rows before each stretch that only bring the recurrent state up to date.
        replay_zero_init_states: not read: stretches start with the state that was recorded.
        keywords: the keywords of the rings: n_step, gamma, storage, seed, columns …; in an execution plan, n_step and
            gamma are by default those of the policies.

    Attributes:
        buffers: policy id → its ring; also by the name `replay_buffers`.

    Raises:
        ConfigError: a number is out of range, or two do not go together.
    """

    def __init__(
        self,
        num_shards: int = 1,
        learning_starts: int = 1000,
        buffer_size: int = 10_000,
        replay_batch_size: int = 32,
        prioritized_replay_alpha: float = 0.6,
        prioritized_replay_beta: Any = 0.4,
        prioritized_replay_eps: float = 1e-6,
        replay_mode: str = "independent",
        replay_sequence_length: int = 1,
        replay_burn_in: int = 0,
        replay_zero_init_states: bool = True,
        **keywords: Any,
    ) -> None:
        check_at_least_one(
            num_shards=num_shards,
            buffer_size=buffer_size,
            replay_batch_size=replay_batch_size,
            replay_sequence_length=replay_sequence_length,
        )
        if replay_mode not in MODES:
            raise ConfigError(
                f"replay_mode={replay_mode!r}.{did_you_mean(replay_mode, MODES)} Choose {' or '.join(MODES)}"
            )
        if replay_mode == "lockstep" and replay_sequence_length > 1:
            raise ConfigError(
                f"replay_mode='lockstep' with replay_sequence_length={replay_sequence_length}; expected 1"
            )
        self.learning_starts = learning_starts // num_shards
        self.batch_size = max(1, replay_batch_size // replay_sequence_length)
        self.mode, self.length = replay_mode, replay_sequence_length
        self.buffers: dict[str, ReplayBuffer] = {}
        self._steps_added = 0
        self._prioritized = prioritized_replay_alpha > 0 and replay_mode == "independent"
        self._keywords = {"capacity": buffer_size // num_shards, **keywords}
        if self._prioritized:
            names = {"alpha": prioritized_replay_alpha, "beta": prioritized_replay_beta, "eps": prioritized_replay_eps}
            self._keywords |= names
        if replay_sequence_length > 1:
            self._keywords |= {"burn_in": replay_burn_in, "length": replay_sequence_length}

    @classmethod
    def as_remote(cls, **options: Any) -> Any:
        """The Ray actor class: `as_remote(num_cpus=1).remote(num_shards=4, …)`; `options` are Ray's."""
        from lightning_rl.rollouts.ray.actors import as_remote

        return as_remote(cls, **options)

    # -- the three verbs ----------------------------------------------------------------------------------------------
    def add_batch(self, batch: SampleBatch | MultiAgentBatch | Mapping[str, Any]) -> None:
        """Store experience: fragments `[T, B, …]` of a worker, or rows `[N, …]` in the order of time.

        Rows have "obs", "actions", "rewards", "terminated" (or "dones"), "next_obs" (or "new_obs"), perhaps
        "truncated", all as arrays or tensors; where one row's next observation is not the next row's, or an episode
        ends, `fragment_of_rows` cuts. "priorities", TD errors that workers computed, are those of their rows.

        Raises:
            ConfigError: a column is missing; the columns are not those of the policy's first batch; in lockstep, the
                policies' rows are not of the same steps.
        """
        batch = as_collected(batch)
        if isinstance(batch, MultiAgentBatch):
            batches = batch.policy_batches
        else:
            batches = {DEFAULT_POLICY: batch if isinstance(batch, SampleBatch) else SampleBatch(batch)}
        fragments = {
            name: rows if isinstance(typed(rows), Fragment) else fragment_of_rows(rows)
            for name, rows in batches.items()
        }
        first = next(iter(fragments.values()))
        if self.mode == "lockstep" and not all(torch.equal(f.valid, first.valid) for f in fragments.values()):
            counts = {name: env_steps(fragment) for name, fragment in fragments.items()}
            raise ConfigError(
                f"replay_mode='lockstep' needs rows of the same steps for each policy; these are {counts}"
            )
        for name, fragment in fragments.items():
            if name not in self.buffers:
                self.buffers[name] = self._make(len(self.buffers), name)
            self.buffers[name].add(fragment)
        self._steps_added += batch.env_steps if isinstance(batch, MultiAgentBatch) else env_steps(first)

    def replay(self, policy_id: str | None = None) -> Any:
        """A batch to learn from; `None` until `learning_starts` steps were added (or rows are too few for a batch).

        Args:
            policy_id: the id of which policy; `None`: of all. A single agent's batch, or that of the named policy, is a
                `SampleBatch` under RLlib's names, whose `policy_batches` are itself; else it is a `MultiAgentBatch`.

        Raises:
            ConfigError: nothing was ever added for that policy, though learning has started.
        """
        if self.num_added < self.learning_starts or not self.buffers:
            return None
        if policy_id is not None and policy_id not in self.buffers:
            raise ConfigError(f"no rows of policy {policy_id!r}.{did_you_mean(policy_id, self.buffers)}")
        names = list(self.buffers) if policy_id is None else [policy_id]
        if any(len(self.buffers[name]) < self.batch_size for name in names):
            return None
        batches = {names[0]: self.buffers[names[0]].sample(self.batch_size)}
        for name in names[1:]:
            buffer = self.buffers[name]
            lockstep = self.mode == "lockstep"
            batches[name] = buffer.rows(batches[names[0]].batch_indexes) if lockstep else buffer.sample(self.batch_size)
        alone = policy_id is not None or names == [DEFAULT_POLICY]
        return classic_batch(batches[names[0]] if alone else MultiAgentBatch(batches, self.batch_size))

    def update_priorities(self, priorities: Any, td_errors: Any = None) -> None:
        """The rows of a batch have these TD errors; without effect where draws are uniform.

        Args:
            priorities: policy id → (batch_indexes, td_errors); or the batch_indexes alone, of the only policy.
            td_errors: TD errors of the rows, together with batch_indexes.

        Raises:
            NonFiniteError: an error is NaN or infinite.
            ConfigError: there is no such policy, or several and none is named.
        """
        if not isinstance(priorities, Mapping):
            if len(self.buffers) != 1:
                raise ConfigError(
                    f"there are rows of the policies {list(self.buffers)}: name the one, {{id: (rows, …)}}"
                )
            priorities = {next(iter(self.buffers)): (priorities, td_errors)}
        for name, (indexes, errors) in priorities.items():
            if name not in self.buffers:
                raise ConfigError(f"no rows of policy {name!r}.{did_you_mean(name, self.buffers)}")
            buffer = self.buffers[name]
            if isinstance(buffer, PrioritizedReplayBuffer):
                buffer.update_priorities(indexes, errors)

    # -- bookkeeping --------------------------------------------------------------------------------------------------
    def __len__(self) -> int:
        """Rows (or sequences) that can be drawn, over all policies."""
        return sum(map(len, self.buffers.values()))

    @property
    def num_added(self) -> int:
        """Environment steps added so far, which is what `learning_starts` counts."""
        return self._steps_added

    @property
    def replay_buffers(self) -> dict[str, ReplayBuffer]:
        """Policy id → its ring."""
        return self.buffers

    def stats(self, debug: bool = False) -> dict[str, Any]:
        """Steps added so far, and under "policy_<id>" the numbers of each policy's ring; `debug` has no effect."""
        found: dict[str, Any] = {"num_added": self.num_added}
        for name, buffer in self.buffers.items():
            found[f"policy_{name}"] = {STATS.get(key, key): number for key, number in buffer.stats().items()}
        return found

    def get_state(self) -> dict[str, Any]:
        """Everything, as plain containers and tensors."""
        return {
            "num_added": self.num_added,
            "buffers": {name: buffer.state_dict() for name, buffer in self.buffers.items()},
        }

    def set_state(self, state: Mapping[str, Any]) -> Self:
        """Continue from `state`.

        Raises:
            CheckpointError: it is of a buffer of another size or kind.
        """
        self.buffers = {
            name: self.buffers[name] if name in self.buffers else self._make(number, name)
            for number, name in enumerate(state["buffers"])
        }
        for name, buffer in self.buffers.items():
            buffer.load_state_dict(state["buffers"][name])
        self._steps_added = int(state["num_added"])
        return self

    def _make(self, number: int, policy_id: str) -> ReplayBuffer:
        """The ring of the policy whose rows come `number`-th; each draws with its own seed."""
        policy, config = plan_policies.get().get(policy_id, (None, {}))
        steps = config.get("n_step", 1)
        sums = {"n_step": steps, "gamma": policy.gamma} if steps > 1 else {}
        keywords = {**sums, **self._keywords, "seed": self._keywords.get("seed", 0) + number}
        if self.length > 1:
            kind = PrioritizedSequenceReplayBuffer if self._prioritized else SequenceReplayBuffer
        else:
            kind = PrioritizedReplayBuffer if self._prioritized else ReplayBuffer
        return kind(**keywords)


class TrainerReplayBuffer(LocalReplayBuffer):
    """The rings that the policies of a trainer learn from; what is drawn by `replay` changes no training.

    Args:
        feeds: policy id → its feed, which has a ring.
        lockstep: whether policies draw the same environment steps.
    """

    def __init__(self, feeds: Mapping[str, Any], lockstep: bool) -> None:
        first = next(iter(feeds.values()))
        self.learning_starts, self.batch_size = first.ratio.learning_starts, first.batch_size
        self.mode = "lockstep" if lockstep else "independent"
        self.buffers = {name: feed.buffer for name, feed in feeds.items()}
        self._steps_added = 0

    @property
    def num_added(self) -> int:
        """Rows added so far to the ring that has had most."""
        return max(buffer.added for buffer in self.buffers.values())


def call_buffer(method: Any, *arguments: Any) -> Any:
    """The result of a method of a buffer here, or of one that is a Ray actor."""
    # The object reference's own method gives its value without an import of Ray.
    return method.remote(*arguments).future().result() if hasattr(method, "remote") else method(*arguments)
