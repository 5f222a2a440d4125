"""Ape-X: workers that act, shards that replay and a policy that learns, all at the same time.

Fragments go from the workers to the shards; only references to them come to the learner's process. With
`workers.num_workers=0` everything happens in this process, one after the other, with the same meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from lightning_rl.callbacks.hooks import overridden_hooks
from lightning_rl.data.apex_hooks import ClipRewards, InitialPriorities
from lightning_rl.data.draws import Draw
from lightning_rl.data.inflight_requests import InflightRequests
from lightning_rl.data.intrinsic_rewards_check import check_intrinsic_rewards
from lightning_rl.data.plans import record_times
from lightning_rl.data.replay_feed import Intensity, ReplayFeed
from lightning_rl.data.shards import ReplayShard, ReplayShards
from lightning_rl.data.source import Source
from lightning_rl.errors import ConfigError
from lightning_rl.rollouts.processes.remote_objects import make_objects
from lightning_rl.rollouts.worker_results import SampleReference
from lightning_rl.schema.ranges import Count, Range, WholeEnvSteps
from lightning_rl.schema.signatures import check_fields

__all__ = ["ShardedReplayFeed", "receive_and_replay"]


def receive_and_replay(workers: Any, policy: Any, replay: ShardedReplayFeed) -> Iterator[Any]:
    """Store a sample of a worker in a shard; then draw until no gradient step is due; and again."""
    for sample in record_times(replay.samples(), replay.record_time):
        yield from replay.store_and_draw(sample)


@check_fields("data")
@dataclass(kw_only=True, eq=False)
class ShardedReplayFeed(ReplayFeed):
    """Prioritized replay in shards, fed by workers without waiting for slow ones. Horgan et al. 2018, 1803.00933.

    Args:
        num_shards: number of shards. Fragments and batches rotate through them; with worker processes, each shard has a
            separate process.
        initial_priorities: whether workers compute the TD errors of new rows; otherwise, new rows get the maximum
            priority so far.
        requests_per_worker: rollout requests in flight per worker process, ≥ 1.
        requests_per_shard: batch requests in flight per shard, ≥ 1; unused in one process.
        max_policy_lag: maximum age, in gradient steps ≥ 1, of the weights of a fragment when it is stored; learning
            waits for workers that are further behind.
        capacity: env steps stored in all shards together.
        n_step: see `ReplayFeed`; sums stop at the end of a fragment.
        learning_starts, update_to_data_ratio, fragments_per_iteration, prioritized: see `ReplayFeed`.
        plan: `plan(workers, policy, replay)`, which yields sample references and batches in turn; `None`:
            `receive_and_replay`.
        other keywords: see `ReplayFeed`.

    Raises:
        ConfigError: a number is out of range, or two do not fit together.
    """

    default_plan = staticmethod(receive_and_replay)
    runs_ahead = True

    num_shards: Annotated[int, Range(1, 1024)] = 4
    initial_priorities: bool = True
    requests_per_worker: Count = 2
    requests_per_shard: Count = 2
    max_policy_lag: Count = 400
    capacity: Count = 1_000_000
    learning_starts: WholeEnvSteps = "5%"  # type: ignore[assignment]  # pyright: ignore
    update_to_data_ratio: Intensity = 0.25
    fragments_per_iteration: Count | None = 10
    n_step: Count = 3
    prioritized: bool = True

    def __post_init__(self) -> None:
        """Refuse sizes of which a shard's share is smaller than a batch."""
        super().__post_init__()
        for name, number in (("capacity", self.capacity), ("learning_starts", self.ratio.learning_starts)):
            if number // self.num_shards < self.batch_size:
                raise ConfigError(
                    f"data.{name}={number} for {self.num_shards} shards is below data.batch_size={self.batch_size} "
                    f"rows each: raise it to {self.batch_size * self.num_shards}, or lower data.num_shards"
                )
        self.inflight = InflightRequests(self.requests_per_worker)
        self._empty: list[dict[str, Any]] = []  # the shards' buffers, until the processes are there

    # -- the DataModule -----------------------------------------------------------------------------------------------
    def attach(self, datamodule: Any) -> None:
        """Become the source of a DataModule, whose workers clip rewards and compute the first priorities."""
        super().attach(datamodule)
        length = datamodule.worker_options.get("fragment_length", self.n_step)
        if self.n_step > length:
            raise ConfigError(
                f"data.n_step={self.n_step} is longer than workers.fragment_length={length}, and sums stop at a "
                f"fragment's end: raise workers.fragment_length to {self.n_step} at least, or lower data.n_step"
            )
        # The hook runs last, on fragments as the user's hooks leave them.
        initial = self.initial_priorities and self.prioritized
        hook = InitialPriorities(self.n_step) if initial else ClipRewards()
        datamodule.callbacks = (*datamodule.callbacks, hook)

    def prepare(self, policy: Any) -> None:
        """Make the shards' buffers, once; settings that do not fit are refused before a process starts.

        Raises:
            ConfigError: the policy or the devices cannot learn from shards; names the cause and what to set.
        """
        Source.prepare(self, policy)
        if self.ranks > 1:
            raise ConfigError(f"data=apex has one learner, and there are {self.ranks} ranks: set trainer.devices=1")
        if policy.is_recurrent and self.initial_priorities and self.prioritized:
            raise ConfigError(
                f"{type(policy).__name__} learns from sequences, whose priorities workers do not know: set "
                "data.initial_priorities=false"
            )
        if (workers := self.datamodule.logical_workers()) > 1:
            check_intrinsic_rewards(
                policy, f"data=apex takes those of {workers} workers as they come", "take data=replay"
            )
        if self.buffer is None:
            self._empty = [{"buffer": self.make_buffer(policy)} for _ in range(self.num_shards)]

    def start(self) -> None:
        """Make the shards, in their own processes if the workers are in some."""
        if self.buffer is None:
            empty, self._empty = self._empty, []
            remote = self.datamodule.num_workers > 0
            shards = make_objects(ReplayShard, empty, remote=remote, remedy="lower data.capacity")
            ahead = self.requests_per_shard if remote else 0  # in one process nothing is gained by it
            self.buffer = ReplayShards(shards, self.batch_size, ahead=ahead, seed=self.seed)

    @property
    def parts(self) -> int:
        """How many buffers share the capacity."""
        return self.num_shards

    def force_reset(self) -> None:
        """Start with new draws, as a run resumed from the checkpoint does."""
        if self.buffer is not None:
            self.buffer.discard_draws()

    def stop(self) -> None:
        """End the shards' processes; safe to call again."""
        if self.buffer is not None and self.datamodule.num_workers > 0:
            self.buffer.stop()
            self.buffer, self._counting = None, False
        self.inflight.forget_weights()

    # -- acting and drawing -------------------------------------------------------------------------------------------
    def samples(self) -> Iterator[SampleReference]:
        """References to the samples of the workers, as they become ready, without end.

        New requests are submitted when no gradient step is due: so they are sent with the newest weights, and acting
        does not run away from learning.
        """
        while True:
            if self.due <= 0 or self.workers.oldest_gradient_steps is None:
                self.inflight.submit(self.workers, self.policy)
            yield self.inflight.next_sample(self.workers)

    def store(self, fragment: Any) -> Any:
        """Send the fragments of a sample to a shard, and count their environment steps.

        Where a callback or the learner wants every fragment, they come here before they are stored.
        """
        policy = self.policy
        self.policy_lag = max(self.policy_lag, policy.gradient_steps - fragment.gradient_steps)
        fragments = fragment.fragments
        callbacks: Any = self.datamodule.trainer.callbacks
        hooked = any(overridden_hooks(callback, ("on_postprocess_trajectory",)) for callback in callbacks)
        if hooked or policy.learner.needs_every_fragment:
            fragments = [policy.learner.take_experience(each) for each in self.workers.fetch(fragment)]
        else:
            policy.env_steps += fragment.env_steps
        self.buffer.add(fragments)
        return fragment

    def draws_due(self) -> Iterator[Draw]:
        """Draws while gradient steps are due, until rows are too few or learning must wait."""
        while self.due > 0:
            oldest = self.workers.oldest_gradient_steps
            if oldest is not None and self.policy.gradient_steps - oldest >= self.max_policy_lag:
                return
            if (batch := self.buffer.sample(self.policy.env_steps)) is None:
                return
            self.ratio.record_steps()
            yield Draw(batch)

    def pop_metrics(self) -> dict[str, float]:
        """The metrics of replay, the largest policy lag of a fragment, and the number of late priorities."""
        return {**super().pop_metrics(), "replay/late_updates": float(self.buffer.late_updates)}
