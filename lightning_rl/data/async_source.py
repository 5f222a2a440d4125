"""Asynchronous learning: workers act while the policy learns.

The weights that act are therefore a few gradient steps old; how many is measured and bounded. With
`workers.num_workers=0` the workers of this process act in turn, with the newest weights.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from lightning_rl.data.fragment_joiner import FragmentJoiner
from lightning_rl.data.inflight_requests import InflightRequests
from lightning_rl.data.intrinsic_rewards_check import check_intrinsic_rewards
from lightning_rl.data.source import Source
from lightning_rl.distributed import all_gather_objects
from lightning_rl.errors import EnvError
from lightning_rl.replay.storage import estimated_bytes
from lightning_rl.rollouts.processes.remote_objects import make_objects
from lightning_rl.rollouts.worker_options import Processes
from lightning_rl.rollouts.worker_results import SampleReference, as_writable
from lightning_rl.sample_batch import SampleBatch, env_steps
from lightning_rl.schema.ranges import Count, NonNegative, Positive
from lightning_rl.schema.signatures import check_fields
from lightning_rl.seeding import derive_seed

__all__ = ["AsyncSource", "batches_as_they_come"]

MB = 1024**2


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """A training batch that a joiner has made or will make.

    Attributes:
        future: `future.result()` gives the batch.
        samples: that the batch consists of.
    """

    future: Any
    samples: Sequence[SampleReference]

    @property
    def oldest(self) -> int:
        """Gradient steps of the oldest weights that collected a part of the batch."""
        return min(sample.gradient_steps for sample in self.samples)


def batches_as_they_come(workers: Any, policy: Any, fragments: AsyncSource) -> Iterator[SampleBatch]:
    """Receive samples until there is a training batch, submit new requests, then give the batch; and again."""
    while True:
        while fragments.wants_more:
            fragments.receive()
        fragments.submit_samples()  # so that workers act while the policy learns
        yield from fragments.next_batch()


@check_fields("data")
@dataclass(kw_only=True, eq=False)
class AsyncSource(Source):
    """Fragments of many workers, joined to training batches as they become ready. Espeholt et al. 2018, 1802.01561.

    Args:
        fragments_per_batch: minimum number of fragments per training batch (= Lightning batch); those of the logical
            workers of one process arrive together.
        requests_per_worker: rollout requests in flight per worker process, ≥ 1.
        max_outstanding_mb: limit on fragments in flight or waiting, in MiB over all ranks; no request is submitted
            above it. Fragment sizes are estimated from the spaces, then measured.
        max_policy_lag: maximum age, in gradient steps ≥ 1, of a fragment's weights; older fragments are dropped and
            counted in `rollout/dropped_steps`.
        order: "ready" takes fragments as they become ready; "fixed" in the order of submission, which is that of the
            workers: two runs with the same seed are then equal, but wait for the slowest worker.
        replay_proportion: number of old fragments replayed per new fragment.
        replay_slots: number of recent fragments kept for replay, over all aggregators; checkpoints do not include them.
        num_aggregators: processes that join fragments ahead of the learner, over all ranks; 0, or without worker
            processes: the learner's process joins them when it needs them.
        plan: `plan(workers, policy, fragments)`; `None`: `batches_as_they_come`.

    Raises:
        ConfigError: a number is out of range, or two do not fit together.
    """

    default_plan = staticmethod(batches_as_they_come)
    runs_ahead = True

    fragments_per_batch: Count = 1
    requests_per_worker: Count = 2
    max_outstanding_mb: Positive = 256.0
    max_policy_lag: Count = 1000
    order: Literal["ready", "fixed"] = "ready"
    replay_proportion: NonNegative = 0.0
    replay_slots: Count = 100
    num_aggregators: Processes = 0

    def __post_init__(self) -> None:
        """Begin without a fragment."""
        super().__post_init__()
        self.dropped = 0  # env steps of fragments that were too old
        self.inflight = InflightRequests(self.requests_per_worker)
        self.joiners: list[Any] = []
        self._group: list[SampleReference] = []  # samples that are not enough for a batch yet
        self._pending: deque[PendingBatch] = deque()
        self._batches = 0  # that were joined so far

    # -- the DataModule -----------------------------------------------------------------------------------------------
    def prepare(self, policy: Any) -> None:
        """Refuse a policy that does not learn from rollouts, or whose exploration's rewards do not fit."""
        super().prepare(policy)
        because = "data=async takes fragments of all workers as they come, some of them again"
        for each in policy.policies.values():
            check_intrinsic_rewards(each, because, "take data=on_policy")

    def start(self) -> None:
        """Make the joiners of fragments."""
        self.inflight = InflightRequests(
            self.requests_per_worker,
            max_bytes=self.max_outstanding_mb * MB / self.ranks,
            in_order=self.order == "fixed",
            nbytes=self._expected_bytes(),
        )
        count = max(1, self._aggregators)
        slots = max(1, self.replay_slots // (count * self.ranks))
        keywords = {"replay_proportion": self.replay_proportion, "replay_slots": slots}
        remedy = "lower data.fragments_per_batch or data.replay_slots"
        self.joiners = make_objects(FragmentJoiner, [keywords] * count, remote=self._aggregators > 0, remedy=remedy)

    def state_dict(self) -> dict[str, Any]:
        """Counters; in one process, also the fragments that are kept to be replayed."""
        own = {"demand": self.inflight.state_dict(), "batches": self._batches, "dropped": self.dropped}
        if self.datamodule.num_workers == 0:  # else this rank's workers are ahead of what is saved
            own["kept"] = all_gather_objects([joiner.submit("state_dict").result() for joiner in self.joiners])
        return own

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the checkpoint was written."""
        self.inflight.load_state_dict(state["demand"])
        self._batches, self.dropped = int(state["batches"]), int(state["dropped"])
        self._discard_batches()
        if self.datamodule.num_workers == 0 and "kept" in state:
            for joiner, kept in zip(self.joiners, state["kept"][self.datamodule.rank], strict=True):
                joiner.submit("load_state_dict", kept)

    def force_reset(self) -> None:
        """Start without waiting fragments, as a run resumed from the checkpoint does.

        In fixed order the samples in flight are waited for and discarded; else they are learned from when they come.
        """
        if self.workers is not None and self.order == "fixed":
            self.workers.drain()
            self.inflight.forget_weights()
        self._discard_batches()
        for future in [joiner.submit("forget") for joiner in self.joiners]:
            with suppress(EnvError):  # a joiner that died keeps nothing
                future.result()

    def stop(self) -> None:
        """End the joiners' processes; safe to call again."""
        self._discard_batches()
        joiners, self.joiners = self.joiners, []
        for joiner in joiners:
            joiner.stop()

    # -- sampling and joining ----------------------------------------------------------------------------------------
    def submit_samples(self) -> None:
        """Submit as many requests to sample as may be in flight, with the newest weights."""
        self.inflight.submit(self.workers, self.policy, self._waiting_bytes)

    @property
    def wants_more(self) -> bool:
        """Whether to call `receive` before the next batch: until there is a batch, and then while samples are ready."""
        if len(self._pending) > self._aggregators:
            return False
        return not self._pending or self.order == "fixed" or self.inflight.has_sample(self.workers)

    def receive(self) -> None:
        """Take the next sample; drop it if it is too old; join those taken when they are enough for a batch."""
        self.submit_samples()
        sample = self.inflight.next_sample(self.workers)
        if self._too_old(sample.gradient_steps):
            self.dropped += sample.env_steps
            return
        self._group.append(sample)
        if sum(each.count for each in self._group) >= self.fragments_per_batch:
            group, self._group = self._group, []
            # To aggregators fragments go from the workers without passing through this process.
            parts = [each.fragments if self._aggregators else self.workers.fetch(each) for each in group]
            seed = derive_seed(self.seed, "replay", self._batches, self.datamodule.rank)
            future = self.joiners[self._batches % len(self.joiners)].submit("join", seed, *parts)
            self._pending.append(PendingBatch(future, group))
            self._batches += 1

    def next_batch(self) -> Iterator[SampleBatch]:
        """The first batch that is ready; nothing if its weights have become too old meanwhile."""
        in_order, first = self.order == "fixed", self._pending[0]
        ahead = next((batch for batch in self._pending if in_order or batch.future.done()), first)
        self._pending.remove(ahead)
        if self._too_old(ahead.oldest):
            self.dropped += sum(sample.env_steps for sample in ahead.samples)
            return
        self.policy_lag = max(self.policy_lag, self.policy.gradient_steps - ahead.oldest)
        batch = as_writable(ahead.future.result())
        if env_steps(batch):  # else it holds nothing but resets, as fragments of one step may
            yield batch

    def pop_metrics(self) -> dict[str, float]:
        """The largest policy lag of a batch, dropped env steps, and MiB in flight or waiting."""
        outstanding = (self.inflight.inflight_bytes(self.workers) + self._waiting_bytes) / MB
        return {
            **super().pop_metrics(),
            "rollout/dropped_steps": float(self.dropped),
            "rollout/outstanding_mb": outstanding,
        }

    def _too_old(self, gradient_steps: int) -> bool:
        return self.policy.gradient_steps - gradient_steps > self.max_policy_lag

    def _discard_batches(self) -> None:
        self._group = []
        self._pending.clear()

    @property
    def _waiting_bytes(self) -> int:
        waiting = [*self._group, *(sample for ahead in self._pending for sample in ahead.samples)]
        return sum(sample.nbytes for sample in waiting)

    @property
    def _aggregators(self) -> int:
        """How many aggregators this rank has; none in one process, where they would join nothing ahead."""
        return -(-self.num_aggregators // self.ranks) if self.datamodule.num_workers else 0

    def _expected_bytes(self) -> float:
        """Estimated bytes of a sample of one process, from the spaces."""
        policy, options = self.policy, self.datamodule.worker_options
        rows = options["num_envs"] * options.get("fragment_length", 128)
        logical = self.datamodule.logical_workers()
        together = -(-logical // self.datamodule.num_workers) if self.datamodule.num_workers else 1
        state = sum(4 * part.numel() for each in policy.policies.values() for part in each.model.get_initial_state())
        spaces = policy.observation_space, policy.action_space
        return float(estimated_bytes(*spaces, rows * together, stack_frames=False, extra_row_bytes=state))
