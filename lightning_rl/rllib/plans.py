"""RLlib's execution plans, `execution_plan(workers, config)`: its operators over the verbs of `data/plans.py`.

A plan of this form collects, stores and learns by itself; one Lightning batch is one item of it. The plan's own state
(a `LocalReplayBuffer` made in it) is no part of checkpoints: a run that goes on fills its buffers again.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lightning_rl.data.datasets import PlanDataset
from lightning_rl.data.plans import (
    NOT_READY,
    concat_batches,
    concurrently,
    for_each,
    parallel_rollouts,
    take,
)
from lightning_rl.data.policy_feeds import trained_policies
from lightning_rl.errors import ConfigError
from lightning_rl.rllib.local_replay_buffer import DEFAULT_POLICY
from lightning_rl.rollouts.rollout_worker import RolloutWorker
from lightning_rl.sample_batch import AnyBatch, MultiAgentBatch, SampleBatch, is_fragment
from lightning_rl.schema.signatures import call_with_accepted_args

__all__ = [
    "ClassicPlan",
    "ConcatBatches",
    "Concurrently",
    "LocalIterator",
    "ParallelRollouts",
    "PlannedDataset",
    "Replay",
    "StandardMetricsReporting",
    "StoreToReplayBuffer",
    "TrainOneStep",
    "UpdateTargetNetwork",
    "metrics_by_policy",
]


class LocalIterator:
    """Items that operators are applied to, one after the other; NOT_READY passes through.

    Args:
        items: what is iterated.
    """

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = iter(items)

    def __iter__(self) -> Iterator[Any]:
        return self.items

    def __next__(self) -> Any:
        return next(self.items)

    def for_each(self, fn: Callable[[Any], Any]) -> LocalIterator:
        """`fn` of every item."""
        return LocalIterator(for_each(self.items, fn))

    def filter(self, fn: Callable[[Any], bool]) -> LocalIterator:
        """The items that `fn` is true of."""
        return LocalIterator(item for item in self.items if item is NOT_READY or fn(item))

    def combine(self, fn: Callable[[Any], Iterable[Any]]) -> LocalIterator:
        """All items of the lists that `fn` makes of every item."""
        return LocalIterator(self._items_of_lists(fn))

    def _items_of_lists(self, fn: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
        for item in self.items:
            yield from [item] if item is NOT_READY else fn(item)

    def take(self, count: int) -> list[Any]:
        """The next `count` items that are there."""
        return list(take((item for item in self.items if item is not NOT_READY), count))


def metrics_by_policy(policy: Any, metrics: Mapping[str, float], prefix: str = "") -> dict[str, dict[str, float]]:
    """Policy id → its metrics of learning, of those policies that have some.

    Args:
        policy: that learned; it may hold several.
        metrics: by name; with several policies by "<policy id>/<name>".
        prefix: of the names; others are left out.
    """
    held: Any = getattr(policy, "policies", None)
    prefixes = {DEFAULT_POLICY: prefix} if held is None else {name: f"{prefix}{name}/" for name in held}
    found = {
        name: {key.removeprefix(start): metrics[key] for key in metrics if key.startswith(start)}
        for name, start in prefixes.items()
    }
    return {name: own for name, own in found.items() if own or held is None}


# -- operators --------------------------------------------------------------------------------------------------------
def ParallelRollouts(workers: Any, *, mode: str = "bulk_sync") -> LocalIterator:  # noqa: N802
    """Fragments, collected with the newest weights; see `parallel_rollouts`.

    Where they go into a replay buffer they are counted here, and filters take them in.
    """
    policy = workers.policy
    rollouts = parallel_rollouts(workers, policy, mode)
    replayed = all(each.off_policy for each in trained_policies(policy))
    return LocalIterator(for_each(rollouts, policy.learner.take_experience) if replayed else rollouts)


def Replay(*, local_buffer: Any, policy_id: str | None = None) -> LocalIterator:  # noqa: N802
    """Draws from a `LocalReplayBuffer` without end; NOT_READY while it gives nothing."""

    def draws() -> Iterator[Any]:
        while True:
            batch = local_buffer.replay(policy_id)
            yield NOT_READY if batch is None else batch

    return LocalIterator(draws())


def Concurrently(  # noqa: N802
    ops: Sequence[Iterable[Any]],
    *,
    mode: str = "round_robin",
    output_indexes: Sequence[int] | None = None,
    round_robin_weights: Sequence[int | str] | None = None,
) -> LocalIterator:
    """Several operators as one; see `concurrently`."""
    return LocalIterator(concurrently(ops, mode, round_robin_weights, output_indexes))


class StoreToReplayBuffer:
    """Adds batches to a `LocalReplayBuffer`.

    Args:
        local_buffer: the buffer.
    """

    def __init__(self, *, local_buffer: Any) -> None:
        self.buffer = local_buffer

    def __call__(self, batch: SampleBatch) -> SampleBatch:
        """The batch, stored."""
        self.buffer.add_batch(batch)
        return batch


class ConcatBatches:
    """Joins batches until there are `min_batch_size` rows, for `combine`."""

    def __init__(self, min_batch_size: int) -> None:
        self.min_batch_size = min_batch_size
        self.held: list[SampleBatch] = []

    def __call__(self, batch: SampleBatch) -> list[SampleBatch]:
        """The joined batch, or nothing yet."""
        self.held.append(batch)
        joined = list(concat_batches(self.held, self.min_batch_size))
        self.held = [] if joined else self.held
        return joined


class TrainOneStep:
    """Learns from every batch.

    Args:
        workers: of the plan, whose policy learns.
    """

    def __init__(self, workers: Any, num_sgd_iter: int = 1) -> None:
        if num_sgd_iter != 1:
            raise ConfigError(f"TrainOneStep(num_sgd_iter={num_sgd_iter}): give the config key 'num_sgd_iter' instead")
        self.policy = workers.policy

    def __call__(self, batch: AnyBatch) -> tuple[AnyBatch, dict[str, Any]]:
        """The batch, and by policy id: the metrics under "learner_stats", and "td_error" `[N]` where the loss has it.

        Priorities: `buffer.update_priorities(batch.batch_indexes, info["default_policy"]["td_error"])`; of several
        policies `{name: (batch[name].batch_indexes, info[name]["td_error"]) for name in info}`.
        """
        batch = batch.to(self.policy.device)
        stats = metrics_by_policy(self.policy, self.policy.learner.update(batch))
        info: dict[str, Any] = {name: {"learner_stats": own} for name, own in stats.items()}
        for name, own in info.items():
            several = isinstance(batch, MultiAgentBatch)
            rows, policy = (batch[name], self.policy.get_policy(name)) if several else (batch, self.policy)
            if not is_fragment(rows) and policy.learner.td_errors is not None:
                own["td_error"] = policy.learner.td_errors.cpu().numpy()
        return batch, info


class UpdateTargetNetwork:
    """Moves the target network every `target_update_freq` environment steps, instead of the policy's own interval.

    Policies whose targets follow slowly after every gradient step (SAC, TD3) go on doing that.

    Args:
        workers: of the plan, whose policy learns.
        target_update_freq: environment steps; 0 for policies whose targets follow slowly.

    Raises:
        ConfigError: the policy has no such target network.
    """

    def __init__(self, workers: Any, target_update_freq: int) -> None:
        self.policy, self.freq = workers.policy, target_update_freq
        policies = trained_policies(self.policy)
        self.own = [policy for policy in policies if hasattr(policy, "update_target")]
        if target_update_freq and len(self.own) < len(policies):
            slow = next(policy for policy in policies if policy not in self.own)
            raise ConfigError(
                f"UpdateTargetNetwork(…, {target_update_freq}): {type(slow).__name__} moves its targets after each "
                "gradient step, by tau; here it can only be 0"
            )
        for policy in self.own:
            policy.target_update_interval = sys.maxsize
        self.last = self.policy.env_steps

    def __call__(self, item: Any) -> Any:
        """The item; the target moves if it is time."""
        if self.own and self.policy.env_steps - self.last >= self.freq:
            for policy in self.own:
                policy.update_target()
            self.last = self.policy.env_steps
        return item


def StandardMetricsReporting(train_op: Iterable[Any], workers: Any, config: Mapping[str, Any]) -> LocalIterator:  # noqa: N802
    """The last item of each iteration, which lasts at least `timesteps_per_iteration` environment steps (default 0).

    The numbers themselves are collected by the Trainer.
    """
    least, policy = int(config.get("timesteps_per_iteration") or 0), workers.policy

    def reports() -> Iterator[Any]:
        since = policy.env_steps
        for item in train_op:
            if item is not NOT_READY and policy.env_steps - since >= least:
                yield item
                since = policy.env_steps

    return LocalIterator(reports())


# -- in a Trainer -----------------------------------------------------------------------------------------------------
class ClassicPlan:
    """An `execution_plan(workers, config)` that a `PlannedDataset` goes through; it is started once.

    Args:
        plan: the function; it may take a trainer before these.
        config: RLlib's keys.
        trainer: what it gets for that.
    """

    def __init__(self, plan: Callable[..., Iterable[Any]], config: Mapping[str, Any], trainer: Any = None) -> None:
        self.plan, self.config, self.trainer = plan, config, trainer
        self._running: tuple[Any, Iterator[Any]] | None = None

    def __call__(self, workers: PlanWorkers) -> Iterator[Any]:
        """The running iterator of the plan; a new one if the workers are others than before."""
        if self._running is None or self._running[0] is not workers.workers:
            trainer = [self.trainer] if self.trainer is not None else []
            self._running = (workers.workers, iter(call_with_accepted_args(self.plan, *trainer, workers, self.config)))
        return self._running[1]


class LearningWorker(RolloutWorker):
    """The worker whose policy learns; it has no environments, so it does not sample.

    Args:
        policy: that learns.
    """

    def __init__(self, policy: Any) -> None:
        self.policy = policy


class PlanWorkers:
    """The workers of a plan, with the policy that learns: what a `WorkerSet` does, and the time that it takes noted.

    Args:
        workers: the worker set.
        policy: that learns.
        datamodule: its `record_time` gets the seconds of sampling.
    """

    def __init__(self, workers: Any, policy: Any, datamodule: Any) -> None:
        self.workers, self.policy, self.datamodule = workers, policy, datamodule

    def __getattr__(self, name: str) -> Any:
        return getattr(self.workers, name)

    def local_worker(self) -> RolloutWorker:
        """The worker whose policy learns; it samples, too, if no others do."""
        local = self.workers.local_worker()
        return local if local is not None and local.policy is self.policy else LearningWorker(self.policy)

    def sample(self) -> SampleBatch:
        """One fragment of every worker."""
        started = time.perf_counter()
        fragment = self.workers.sample()
        self.datamodule.record_time(fragment, time.perf_counter() - started)
        return fragment


class PlannedDataset(PlanDataset):
    """Items are calls that go on with a plan until its next item: the plan learns by itself.

    Args:
        datamodule: holds the workers.
        policy: that learns.
    """

    def __init__(self, datamodule: Any, policy: Any) -> None:
        super().__init__(datamodule, policy)
        self.plan: ClassicPlan = datamodule.source.plan
        self.workers = PlanWorkers(datamodule.workers, policy, datamodule)

    def iterations(self) -> Iterator[Callable[[], Any]]:
        """Each goes on with the plan."""
        while True:
            yield functools.partial(next, self.plan(self.workers))
