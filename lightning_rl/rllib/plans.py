"""RLlib's execution plans, `execution_plan(workers, config)`: its operators over the generators of `plan_verbs.py`.

A plan of this form collects, stores and learns by itself; one Lightning batch is one item of it. The plan's own state
(a `LocalReplayBuffer` made in it) is not a part of checkpoints: a run that continues fills its buffers again.
"""

from __future__ import annotations

import inspect
import itertools
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar, copy_context
from operator import methodcaller
from typing import Any, Self

from lightning_rl.data.datasets import PlanDataset
from lightning_rl.data.policy_feeds import trained_policies
from lightning_rl.errors import ConfigError
from lightning_rl.rllib.local_replay_buffer import LocalReplayBuffer, call_buffer, plan_policies
from lightning_rl.rllib.plan_verbs import NOT_READY, concurrently, for_each, rollouts
from lightning_rl.rllib.sample_batch import classic_batch
from lightning_rl.rllib.sampled_batch import as_collected, count_steps, join_samples
from lightning_rl.rllib.workers import PlanWorkers, policies_of
from lightning_rl.sample_batch import AnyBatch, Fragment, MultiAgentBatch, SampleBatch, env_steps, typed

__all__ = [
    "ConcatBatches",
    "Concurrently",
    "LocalIterator",
    "MultiGPUTrainOneStep",
    "ParallelRollouts",
    "Replay",
    "SelectExperiences",
    "StandardMetricsReporting",
    "StandardizeFields",
    "StoreToReplayBuffer",
    "TrainOneStep",
    "UpdateTargetNetwork",
    "multi_gpu_train_one_step",
    "standardize_fields",
    "synchronous_parallel_sample",
    "train_one_step",
    "training_steps",
]


class LocalIterator:
    """Items that operators are applied to, one after the other.

    Operators pass NOT_READY through, and iteration waits for the next item.

    Args:
        items: what is iterated.
    """

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = iter(items)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(item for item in self.items if item is not NOT_READY)

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

    def batch(self, count: int) -> LocalIterator:
        """Lists of `count` items."""
        return LocalIterator(self._lists(count))

    def _lists(self, count: int) -> Iterator[list[Any]]:
        held: list[Any] = []
        for item in self.items:
            if item is NOT_READY:
                yield item
                continue
            held.append(item)
            if len(held) == count:
                yield held
                held = []

    def flatten(self) -> LocalIterator:
        """The items of the lists."""
        return self.combine(lambda items: items)

    def zip_with_source_actor(self) -> LocalIterator:
        """Pairs (`None`, item): an item does not say which worker it is from."""
        return self.for_each(lambda item: (None, item))

    def duplicate(self, n: int) -> list[LocalIterator]:
        """The same items `n` times; an iterator whose next item the others have still to take gives NOT_READY."""
        held: list[deque[Any]] = [deque() for _ in range(n)]

        def items(own: deque[Any]) -> Iterator[Any]:
            while True:
                if len(own) < max(map(len, held)):
                    yield NOT_READY
                    continue
                if not own:
                    item = next(self.items, None)
                    if item is None:
                        return
                    for each in held if item is not NOT_READY else [own]:
                        each.append(item)
                yield own.popleft()

        return [*map(LocalIterator, map(items, held))]

    def take(self, count: int) -> list[Any]:
        """The next `count` items that are there."""
        return [*itertools.islice(self, count)]


STEPS_SAMPLED_COUNTER = "num_steps_sampled"


class SharedMetrics:
    """What the functions of an execution plan count; a trainer's result has it under "info".

    Attributes:
        counters: by name; "num_steps_sampled" is the environment steps before the present item of the plan.
    """

    def __init__(self) -> None:
        self.counters: defaultdict[str, int] = defaultdict(int)


running_metrics: ContextVar[SharedMetrics] = ContextVar("running_metrics")


def get_shared_metrics() -> SharedMetrics:
    """Those of the execution plan that runs.

    Raises:
        LookupError: none does.
    """
    return running_metrics.get()


def metrics_by_policy(policy: Any, metrics: Mapping[str, float], prefix: str = "") -> dict[str, dict[str, float]]:
    """Policy id → its metrics of learning, of those policies that have some.

    Args:
        policy: that learned; it may hold several.
        metrics: values by name; with several policies by "<policy id>/<name>".
        prefix: the prefix of the names; others are left out.
    """
    alone = not policy.agents
    prefixes = {name: prefix if alone else f"{prefix}{name}/" for name in policy.policies}
    found = {
        name: {key.removeprefix(start): metrics[key] for key in metrics if key.startswith(start)}
        for name, start in prefixes.items()
    }
    return {name: own for name, own in found.items() if own or alone}


# -- operators --------------------------------------------------------------------------------------------------------
def ParallelRollouts(workers: Any, *, mode: str = "bulk_sync", num_async: int = 1) -> LocalIterator:  # noqa: N802
    """Samples, collected with the newest weights; see `rollouts`. Their rows are those that policies learn from.

    Where they go into a replay buffer they are counted here, and filters take them in.

    Args:
        workers: the workers of the plan.
        mode: "bulk_sync", "async", or "raw": the fragment of each worker by itself, in worker order.
        num_async: not read; `data.requests_per_worker` says how many requests a worker has in flight.
    """
    policy = workers.policy
    fragments = _raw_rollouts(workers, policy) if mode == "raw" else rollouts(workers, policy, mode)
    replayed = all(each.off_policy for each in trained_policies(policy))
    take_experience = policy.take_experience if policy.agents else policy.learner.take_experience
    fragments = for_each(fragments, as_collected)
    taken = for_each(fragments, take_experience) if replayed else fragments
    return LocalIterator(for_each(taken, workers.rows_when_read))


def _raw_rollouts(workers: Any, policy: Any) -> Iterator[Any]:
    while True:
        workers.sync_weights(policy)
        yield from workers.workers.foreach_worker(methodcaller("sample"))


def Replay(  # noqa: N802
    *, local_buffer: Any = None, actors: Sequence[Any] | None = None, num_async: int = 4, policy_id: str | None = None
) -> LocalIterator:
    """Draws from replay buffers in turn, without end; NOT_READY while one gives nothing.

    Args:
        local_buffer: a `LocalReplayBuffer`.
        actors: several of them, or Ray actors of them (`LocalReplayBuffer.as_remote`), in its place.
        num_async: not read: a draw is asked for when it is needed.
        policy_id: whose rows are drawn; `None`: those of all policies.
    """
    buffers = itertools.cycle(_buffers(local_buffer, actors))

    def draws() -> Iterator[Any]:
        for buffer in buffers:
            batch = call_buffer(buffer.replay, policy_id)
            yield NOT_READY if batch is None else batch

    return LocalIterator(draws())


def _buffers(local_buffer: Any, actors: Sequence[Any] | None) -> Sequence[Any]:
    if (local_buffer is None) == (actors is None):
        raise ConfigError("give either local_buffer=…, or actors=[…]")
    return [local_buffer] if actors is None else list(actors)


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
    """Adds batches to replay buffers.

    Args:
        local_buffer, actors: see `Replay`; of several, each gets the next batch.
    """

    def __init__(self, *, local_buffer: Any = None, actors: Sequence[Any] | None = None) -> None:
        self.buffers = itertools.cycle(_buffers(local_buffer, actors))

    def __call__(self, batch: SampleBatch) -> SampleBatch:
        """The batch, stored."""
        call_buffer(next(self.buffers).add_batch, as_collected(batch))
        return batch


class ConcatBatches:
    """Joins batches until there are `min_batch_size` rows, for `combine`.

    Args:
        min_batch_size: least number of rows.
        count_steps_by: "env_steps", or with several agents "agent_steps": the rows of all policies.
    """

    def __init__(self, min_batch_size: int, count_steps_by: str = "env_steps") -> None:
        if count_steps_by not in ("env_steps", "agent_steps"):
            raise ConfigError(f"count_steps_by={count_steps_by!r}; expected 'env_steps' or 'agent_steps'")
        self.min_batch_size, self.by_agent = min_batch_size, count_steps_by == "agent_steps"
        self.held: list[AnyBatch] = []

    def __call__(self, batch: AnyBatch) -> list[AnyBatch]:
        """The joined batch, or nothing yet."""
        self.held.append(batch)
        if sum(map(self._count, self.held)) < self.min_batch_size:
            return []
        held, self.held = self.held, []
        return [join_samples(held)]

    def _count(self, batch: AnyBatch) -> int:
        several = self.by_agent and isinstance(batch, MultiAgentBatch)
        return sum(count_steps(part) for _, part in batch.items()) if several else count_steps(batch)


class SelectExperiences:
    """Leaves out the batches of other policies.

    Args:
        policy_ids: ids to keep, or a worker, whose policies in training are kept.
    """

    def __init__(self, policy_ids: Any) -> None:
        found = getattr(policy_ids, "policies_to_train", policy_ids)
        self.policy_ids = [found] if isinstance(found, str) else [*found]

    def __call__(self, batch: AnyBatch) -> AnyBatch:
        """The batch with those policies; one of a single policy as it is."""
        if not isinstance(batch, MultiAgentBatch):
            return batch
        kept = {name: part for name, part in batch.items() if name in self.policy_ids}
        return classic_batch(MultiAgentBatch(kept, batch.env_steps, batch.num_envs))


class StandardizeFields:
    """Standardizes columns of rows to mean 0 and deviation 1.

    Args:
        fields: names of the columns.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = [*fields]

    def __call__(self, batch: AnyBatch) -> AnyBatch:
        """The batch, changed where it holds rows with these columns."""
        parts = [part for _, part in batch.items()] if isinstance(batch, MultiAgentBatch) else [batch]
        for part in parts:
            for name in self.fields:
                if name in part:
                    column = part[name]
                    part[name] = (column - column.mean()) / max(1e-4, float(column.std()))
        return batch


class TrainOneStep:
    """Learns from every batch.

    Args:
        workers: the workers of the plan, whose policy learns.
        policies: ids of those that learn; others stay as they are. `None`: all that are trained.
        num_sgd_iter: sweeps over the batch.
        sgd_minibatch_size: rows of a gradient step; 0: all of the policy's rows.
    """

    def __init__(
        self,
        workers: Any,
        policies: Sequence[str] | None = None,
        num_sgd_iter: int = 1,
        sgd_minibatch_size: int = 0,
    ) -> None:
        self.policy, self.num_sgd_iter, self.sgd_minibatch_size = workers.policy, num_sgd_iter, sgd_minibatch_size
        self.select = None if policies is None else SelectExperiences(policies)
        chosen = trained_policies(self.policy) if policies is None else map(self.policy.get_policy, policies)
        self.sweeping = [each for each in chosen if hasattr(each, "passes")]

    def __call__(self, batch: AnyBatch) -> tuple[AnyBatch, dict[str, Any]]:
        """The batch, and by policy id: the metrics under "learner_stats", and "td_error" `[N]` where the loss has it.

        Priorities: `buffer.update_priorities(batch.batch_indexes, info["default_policy"]["td_error"])`; of several
        policies `{name: (batch[name].batch_indexes, info[name]["td_error"]) for name in info}`.
        """
        batch = batch if self.select is None else self.select(batch)
        learned = as_collected(batch).to(self.policy.device)
        for each in self.sweeping:
            part = (
                learned.policy_batches.get(each.policy_id, learned) if isinstance(learned, MultiAgentBatch) else learned
            )
            size = self.sgd_minibatch_size or max(1, env_steps(part))
            each.passes, each.minibatches = self.num_sgd_iter, max(1, round(env_steps(part) / size))
        self.policy.training_step(learned)
        stats = metrics_by_policy(self.policy, self.policy.iteration_metrics)
        info: dict[str, Any] = {name: {"learner_stats": own} for name, own in stats.items()}
        for name, own in info.items():
            several = isinstance(learned, MultiAgentBatch)
            rows, policy = (learned[name], self.policy.get_policy(name)) if several else (learned, self.policy)
            if not isinstance(typed(rows), Fragment) and policy.learner.td_errors is not None:
                own["td_error"] = policy.learner.td_errors.cpu().numpy()
        return batch, info


def MultiGPUTrainOneStep(  # noqa: N802
    *,
    workers: Any,
    sgd_minibatch_size: int,
    num_sgd_iter: int,
    num_gpus: int = 0,
    shuffle_sequences: bool = True,
    policies: Sequence[str] | None = None,
    _fake_gpus: bool = False,
    framework: str = "torch",
) -> TrainOneStep:
    """`TrainOneStep`: the Trainer's device and strategy say where it computes.

    Args:
        workers, sgd_minibatch_size, num_sgd_iter, policies: see `TrainOneStep`.
        num_gpus, shuffle_sequences, _fake_gpus, framework: not read.
    """
    return TrainOneStep(workers, policies, num_sgd_iter, sgd_minibatch_size)


# -- in a `training_step` ---------------------------------------------------------------------------------------------
def synchronous_parallel_sample(
    *,
    worker_set: PlanWorkers,
    max_agent_steps: int | None = None,
    max_env_steps: int | None = None,
    concat: bool = True,
) -> Any:
    """Fragments of all workers, collected with the newest weights; at least one of each.

    Args:
        worker_set: the workers of the trainer.
        max_agent_steps, max_env_steps: collect until there are as many steps; give one of them at most.
        concat: join them to one batch; False: a list.
    """
    batches: list[Any] = []
    rollouts, steps = ParallelRollouts(worker_set), 0
    while not batches or steps < (max_agent_steps or max_env_steps or 0):
        batches.append(next(rollouts))
        steps += batches[-1].agent_steps() if max_agent_steps else env_steps(batches[-1])
    return join_samples(batches) if concat else batches


def train_one_step(trainer: Any, train_batch: Any, policies_to_train: Sequence[str] | None = None) -> dict[str, Any]:
    """Learn from a batch in the sweeps and minibatches of the trainer's config.

    Args:
        trainer: whose policies learn.
        train_batch: fragments of `synchronous_parallel_sample`, or rows of a replay buffer.
        policies_to_train: see `TrainOneStep`.

    Returns:
        Policy id → its metrics under "learner_stats", and "td_error".
    """
    alone = isinstance(train_batch, MultiAgentBatch) and not trainer.policy.agents
    sizes = {name: trainer.config[name] for name in ("num_sgd_iter", "sgd_minibatch_size") if name in trainer.config}
    learn = TrainOneStep(trainer.workers, policies_to_train, **sizes)
    return learn(train_batch["default_policy"] if alone else train_batch)[1]


multi_gpu_train_one_step = train_one_step


def standardize_fields(samples: AnyBatch, fields: Sequence[str]) -> AnyBatch:
    """See `StandardizeFields`."""
    return StandardizeFields(fields)(samples)


def training_steps(trainer: Any, workers: PlanWorkers, config: Any, local_replay_buffer: Any = None) -> LocalIterator:
    """The plan of a trainer whose class defines `training_step`: what that returns, again and again."""
    del workers, config, local_replay_buffer  # which are the trainer's
    return LocalIterator(trainer.training_step() for _ in itertools.count())


# -- target networks --------------------------------------------------------------------------------------------------
class UpdateTargetNetwork:
    """Moves the target network every `target_update_freq` environment steps, instead of the policy's own interval.

    Policies whose targets follow slowly after every gradient step (SAC, TD3) continue doing that.

    Args:
        workers: the workers of the plan, whose policy learns.
        target_update_freq: environment steps; 0 for policies whose targets follow slowly.
        by_steps_trained: count rows that were learned from instead.
        policies: ids of those whose targets move; `None`: of all that are trained.

    Raises:
        ConfigError: the policy has no such target network.
    """

    def __init__(
        self,
        workers: Any,
        target_update_freq: int,
        by_steps_trained: bool = False,
        policies: Sequence[str] | None = None,
    ) -> None:
        self.policy, self.freq, self.by_steps_trained = workers.policy, target_update_freq, by_steps_trained
        trained = trained_policies(self.policy) if policies is None else [*map(self.policy.get_policy, policies)]
        self.own = [policy for policy in trained if hasattr(policy, "update_target")]
        if target_update_freq and len(self.own) < len(trained):
            slow = next(policy for policy in trained if policy not in self.own)
            raise ConfigError(
                f"UpdateTargetNetwork(…, {target_update_freq}): {type(slow).__name__} moves its targets after each "
                "gradient step, by tau; here it can only be 0"
            )
        for policy in self.own:
            policy.target_update_interval = sys.maxsize
        self.trained = 0
        self.last = 0 if by_steps_trained else self.policy.env_steps

    def __call__(self, item: Any) -> Any:
        """The item; the target moves if it is time."""
        if self.by_steps_trained:
            self.trained += count_steps(item[0])
        now = self.trained if self.by_steps_trained else self.policy.env_steps
        if self.own and now - self.last >= self.freq:
            for policy in self.own:
                policy.update_target()
            self.last = now
            if (metrics := running_metrics.get(None)) is not None:
                metrics.counters["num_target_updates"] += 1
                metrics.counters["last_target_update_ts"] = now
        return item


class Reports(LocalIterator):
    """The items at which a Trainer reports; functions of `for_each` get its result, and return the one to report.

    Attributes:
        changes: these functions, in order.
    """

    def __init__(self, items: Iterable[Any]) -> None:
        super().__init__(items)
        self.changes: list[Callable[[Any], Any]] = []

    def for_each(self, fn: Callable[[Any], Any]) -> Self:
        """Apply `fn` to every result."""
        self.changes.append(fn)
        return self


def StandardMetricsReporting(  # noqa: N802
    train_op: Iterable[Any],
    workers: Any,
    config: Mapping[str, Any],
    selected_workers: Any = None,
    by_steps_trained: bool = False,
) -> Reports:
    """The last item of each iteration, which lasts at least `timesteps_per_iteration` environment steps (default 0).

    Args:
        train_op: whose items they are.
        workers: the workers of the plan.
        config: RLlib's keys.
        selected_workers, by_steps_trained: not read; the Trainer collects the numbers of all workers.
    """
    least, policy = int(config.get("timesteps_per_iteration") or 0), workers.policy

    def reports() -> Iterator[Any]:
        since = policy.env_steps
        for item in train_op:
            if policy.env_steps - since >= least:
                yield item
                since = policy.env_steps

    return Reports(reports())


# -- in a Trainer -----------------------------------------------------------------------------------------------------
class ClassicPlan:
    """An `execution_plan(workers, config)` that a `PlannedDataset` goes through; it is started once.

    Args:
        plan: the function; it may take a trainer before these, and `**kwargs` or `local_replay_buffer` after them,
            which is a buffer of the config's size for a policy that replays.
        config: RLlib's keys.
        trainer: what it gets for that.
        reading: a `ReaderPlan` whose batches take the place of samples; `None`: workers sample.

    Attributes:
        buffer: the `local_replay_buffer` that the plan got; `None`: it takes none, or has not begun.
    """

    def __init__(
        self, plan: Callable[..., Iterable[Any]], config: Mapping[str, Any], trainer: Any = None, reading: Any = None
    ) -> None:
        self.plan, self.config, self.reading = plan, config, reading
        parameters = inspect.signature(plan).parameters.values()
        names = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        self.trainer = [trainer] if len([name for name in names if name != "local_replay_buffer"]) > 2 else []
        self.takes_buffer = "local_replay_buffer" in names or any(each.kind is each.VAR_KEYWORD for each in parameters)
        self.metrics = SharedMetrics()
        self._running: tuple[Any, Iterator[Any]] | None = None
        self.changes: Sequence[Callable[[Any], Any]] = ()
        self.buffer: LocalReplayBuffer | None = None

    def __call__(self, workers: PlanWorkers) -> Iterator[Any]:
        """The running iterator of the plan; a new one if the workers are others than before."""
        if self._running is None or self._running[0] is not workers.workers:
            replays = all(each.off_policy for each in trained_policies(workers.policy))
            self.buffer = self._buffer() if self.takes_buffer and replays else None
            given = {} if self.buffer is None else {"local_replay_buffer": self.buffer}
            planned = self.plan(*self.trainer, workers, self.config, **given)
            self._running = (workers.workers, iter(planned))
            self.changes = getattr(planned, "changes", [])
        return self._running[1]

    def _buffer(self) -> LocalReplayBuffer:
        section = self.config.get("replay_buffer_config") or {}
        return LocalReplayBuffer(
            learning_starts=self.config["learning_starts"],
            buffer_size=section.get("capacity", self.config.get("buffer_size", 50_000)),
            replay_batch_size=self.config["train_batch_size"],
            replay_mode=(self.config.get("multiagent") or {}).get("replay_mode", "independent"),
            prioritized_replay_alpha=self.config.get("prioritized_replay_alpha", 0.6),
            prioritized_replay_beta=self.config.get("prioritized_replay_beta", 0.4),
            prioritized_replay_eps=self.config.get("prioritized_replay_eps", 1e-6),
        )


class PlannedDataset(PlanDataset):
    """Items are calls that continue with a plan until its next item: the plan learns by itself.

    Args:
        datamodule: holds the workers.
        policy: that learns.
    """

    def __init__(self, datamodule: Any, policy: Any) -> None:
        super().__init__(datamodule, policy)
        self.plan: ClassicPlan = datamodule.source.plan
        reading, workers = self.plan.reading, datamodule.workers
        workers = workers if reading is None else reading.over(workers, policy)
        self.workers = PlanWorkers(workers, policy, datamodule)

    def iterations(self) -> Iterator[Callable[[], Any]]:
        """Each continues with the plan."""
        while True:
            yield self._next

    def _next(self) -> Any:
        metrics = self.plan.metrics
        metrics.counters[STEPS_SAMPLED_COUNTER] = self.workers.policy.env_steps
        context = copy_context()
        context.run(running_metrics.set, metrics)
        config = self.plan.config
        policies = {name: (each, getattr(each, "config", config)) for name, each in policies_of(self.workers).items()}
        context.run(plan_policies.set, policies)
        return context.run(lambda: next(self.plan(self.workers)))
