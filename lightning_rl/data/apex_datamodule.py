"""The DataModule of Ape-X: workers that act, shards that replay and a policy that learns, all at the same time.

Fragments go from the workers to the shards; only references to them come to the learner's process. With
`workers.num_workers=0` everything happens in this process, one after the other, with the same meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from torch import Tensor

from lightning_rl.callbacks.hooks import overridden_hooks
from lightning_rl.data.apex_hooks import ClipRewards, InitialPriorities
from lightning_rl.data.datamodule import RolloutDataModule
from lightning_rl.data.inflight_requests import InflightRequests
from lightning_rl.data.intrinsic_rewards_check import check_intrinsic_rewards
from lightning_rl.data.plans import NOT_READY, Draw, concurrently, for_each, record_times
from lightning_rl.data.replay_datamodule import Intensity, ReplayDataModule
from lightning_rl.data.shards import ReplayShard, ReplayShards
from lightning_rl.errors import ConfigError
from lightning_rl.rollouts.logical_workers import logical_workers
from lightning_rl.rollouts.processes.remote_objects import make_objects
from lightning_rl.rollouts.worker_results import SampleReference
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schedules import to_env_steps
from lightning_rl.schema.ranges import Count, Range, WholeEnvSteps
from lightning_rl.schema.signatures import ImportPath

__all__ = ["ApexDataModule", "receive_and_replay"]


def receive_and_replay(workers: Any, policy: Any, replay: ApexDataModule) -> Iterator[Any]:
    """Store a sample of a worker in a shard; then draw until no gradient step is due; and again."""
    store = for_each(record_times(replay.samples(), replay.record_time), replay.store)
    return concurrently([store, replay.draws_due()], round_robin_weights=[1, "*"])


class ApexDataModule(ReplayDataModule):
    """Prioritised replay in shards, fed by workers without waiting for slow ones. Horgan et al. 2018, 1803.00933.

    Args:
        num_shards: parts of the buffer. Fragments go to them in turn, and batches come from them in turn; with worker
            processes, each shard has a process of its own, too.
        initial_priorities: whether workers compute the TD errors of their new rows; else these get the largest
            priority so far.
        requests_per_worker: requests to sample that each worker process has in flight, ≥ 1.
        requests_per_shard: draws that each shard has in flight, ≥ 1; in one process there are none.
        max_staleness: gradient steps, ≥ 1, that the weights which collected a fragment may be behind when it is
            stored: learning waits for workers that are further behind.
        capacity, batch_size, learning_starts, training_intensity, fragments_per_iteration, n_step, prioritized: as
            `ReplayDataModule`; the capacity is that of all shards, and sums of `n_step` rewards stop at a fragment's
            end.
        plan: `plan(workers, policy, replay)`, which gives sample references and draws in turn; `None`:
            `receive_and_replay`.
        env, workers, evaluation, callbacks, keywords: as `ReplayDataModule`.

    Raises:
        ConfigError: a number is out of range, or two do not fit together.
    """

    default_plan = staticmethod(receive_and_replay)
    runs_ahead = True

    def __init__(
        self,
        env: Any,
        workers: Any = None,
        evaluation: Any = None,
        *,
        num_shards: Annotated[int, Range(1, 1024)] = 4,
        initial_priorities: bool = True,
        requests_per_worker: Count = 2,
        requests_per_shard: Count = 2,
        max_staleness: Count = 400,
        capacity: Count = 1_000_000,
        batch_size: Count = 256,
        learning_starts: WholeEnvSteps = "5%",  # type: ignore[assignment]  # pyright: ignore
        training_intensity: Intensity = 0.25,
        fragments_per_iteration: Count = 10,
        n_step: Count = 3,
        prioritized: bool = True,
        plan: ImportPath | None = None,
        callbacks: Any = (),
        **keywords: Any,
    ) -> None:
        starts: int = to_env_steps(learning_starts)
        check_shares(num_shards, capacity, batch_size, starts)
        # The hook runs last, on fragments as the user's hooks leave them.
        self.initial_priorities = initial_priorities and prioritized
        hook = InitialPriorities(n_step) if self.initial_priorities else ClipRewards()
        super().__init__(
            env,
            workers,
            evaluation,
            capacity=capacity,
            batch_size=batch_size,
            learning_starts=starts,
            training_intensity=training_intensity,
            fragments_per_iteration=fragments_per_iteration,
            n_step=n_step,
            prioritized=prioritized,
            plan=plan,
            callbacks=(*callbacks, hook),
            **keywords,
        )
        length = self.worker_options.get("fragment_length", n_step)
        if n_step > length:
            raise ConfigError(
                f"data.n_step={n_step} is longer than workers.fragment_length={length}, and sums stop at a "
                f"fragment's end: raise workers.fragment_length to {n_step} at least, or lower data.n_step"
            )
        self.num_shards, self.max_staleness = num_shards, max_staleness
        self.inflight, self.requests_per_shard = InflightRequests(requests_per_worker), requests_per_shard
        self._staleness = 0  # the largest since the last report

    # -- Lightning ----------------------------------------------------------------------------------------------------
    def setup(self, stage: str) -> None:
        """Make workers and shards, once; settings that do not fit are refused before a process starts."""
        if stage == "fit" and self.replay is None:
            policy = self._policy()
            self.check_fits(policy)
            buffers = [{"buffer": self.make_buffer(policy)} for _ in range(self.num_shards)]
            RolloutDataModule.setup(self, stage)  # starts Ray where that is needed
            remedy = "lower data.capacity"
            shards = make_objects(ReplayShard, buffers, remote=self.num_workers > 0, remedy=remedy)
            ahead = self.requests_per_shard if self.num_workers else 0  # in one process nothing is gained by it
            self.replay = ReplayShards(shards, self.batch_size, ahead=ahead, seed=self.seed)
        super().setup(stage)

    def check_fits(self, policy: Any) -> None:
        """Refuse policies and devices that cannot learn from shards.

        Raises:
            ConfigError: names the cause and what to set.
        """
        if self.ranks > 1:
            raise ConfigError(f"data=apex has one learner, and there are {self.ranks} ranks: set trainer.devices=1")
        if policy.is_recurrent and self.initial_priorities:
            raise ConfigError(
                f"{type(policy).__name__} learns from sequences, whose priorities workers do not know: set "
                "data.initial_priorities=false"
            )
        workers = logical_workers(self._logical, self.num_workers, ranks=1)
        if workers > 1:
            check_intrinsic_rewards(
                policy, f"data=apex takes those of {workers} workers as they come", "take data=replay"
            )

    @property
    def parts(self) -> int:
        """How many buffers share the capacity."""
        return self.num_shards

    def force_reset(self) -> None:
        """Start with seeded resets and new draws, as a run resumed from the checkpoint does."""
        super().force_reset()
        if self.replay is not None:
            self.replay.discard_draws()

    def stop(self) -> None:
        """Close all environments and processes; safe to call again."""
        if self.replay is not None and self.num_workers > 0:
            self.replay.stop()
            self.replay, self._counting = None, False
        self.inflight.forget_weights()
        super().stop()

    # -- acting and drawing -------------------------------------------------------------------------------------------
    def samples(self) -> Iterator[SampleReference]:
        """References to the samples of the workers, as they become ready, without end.

        New requests are submitted when no gradient step is due: so they are sent with the newest weights, and acting
        does not run away from learning.
        """
        policy = self._policy()
        while True:
            if self.due <= 0 or self.workers.oldest_gradient_steps is None:
                self.inflight.submit(self.workers, policy)
            yield self.inflight.next_sample(self.workers)

    def store(self, fragment: Any) -> Any:
        """Send the fragments of a sample to a shard, and count their environment steps."""
        policy = self._policy()
        self._staleness = max(self._staleness, policy.gradient_steps - fragment.gradient_steps)
        fragments = fragment.fragments
        if policy.learner.needs_every_fragment or self._has_postprocess_hooks():
            fragments = [policy.learner.take_experience(each) for each in self.workers.fetch(fragment)]
        else:
            policy.env_steps += fragment.env_steps
        self.replay.add(fragments)
        return fragment

    def _has_postprocess_hooks(self) -> bool:
        """Whether a callback of the Trainer wants every fragment: then they come here before they are stored."""
        callbacks = self.trainer.callbacks if self.trainer is not None else ()  # type: ignore[attr-defined]
        return any(overridden_hooks(callback, ("on_postprocess_trajectory",)) for callback in callbacks)

    def draws_due(self) -> Iterator[Draw]:
        """Draws while gradient steps are due, without end; NOT_READY while rows are too few or learning must wait."""
        while True:
            batch = self._next_batch() if self.due > 0 else None
            yield NOT_READY if batch is None else Draw(batch)

    def _next_batch(self) -> SampleBatch | None:
        policy, oldest = self._policy(), self.workers.oldest_gradient_steps
        if oldest is not None and policy.gradient_steps - oldest >= self.max_staleness:
            return None
        batch = self.replay.sample(policy.env_steps)
        if batch is not None:
            self.ratio.record_steps()
        return batch

    def update_priorities(self, batch: SampleBatch, td_errors: Tensor) -> None:
        """Send the TD errors `[N]` of a batch to its shard."""
        self.replay.update_priorities(batch.batch_indexes, td_errors)

    def pop_iteration_metrics(self) -> dict[str, float]:
        """The metrics of replay, the largest staleness of a fragment, and the number of late priorities."""
        staleness, self._staleness = self._staleness, 0
        late = 0 if self.replay is None else self.replay.late_updates
        metrics = super().pop_iteration_metrics()
        return {**metrics, "rollout/staleness": float(staleness), "replay/late_updates": float(late)}


def check_shares(num_shards: int, capacity: int, batch_size: int, learning_starts: int) -> None:
    """Refuse sizes if a shard's share of them is smaller than a batch.

    Raises:
        ConfigError: names the size and the batch size.
    """
    for name, number in (("capacity", capacity), ("learning_starts", learning_starts)):
        if number // num_shards < batch_size:
            raise ConfigError(
                f"data.{name}={number} for {num_shards} shards is below data.batch_size={batch_size} rows each: raise "
                f"it to {batch_size * num_shards}, or lower data.num_shards"
            )
