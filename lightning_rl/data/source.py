"""Sources: how the workers of a DataModule are run, and what an iteration learns from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from lightning_rl.data.datasets import PlanDataset
from lightning_rl.data.kinds_of_data import check_kind_of_data
from lightning_rl.data.plans import parallel_rollouts, record_times
from lightning_rl.errors import ConfigError, import_object, short_repr
from lightning_rl.sample_batch import Fragment, typed
from lightning_rl.schema.ranges import Count
from lightning_rl.schema.signatures import ImportPath, check_fields

__all__ = ["Source", "SyncSource"]


@dataclass(kw_only=True, eq=False)
class Source:
    """Gives the iterations of a run, lazily: each item of `iterations` is one Lightning batch.

    A DataModule has one source, and calls it in this order: `attach` when it is constructed, `prepare` before its
    workers are made, `start` after that, `iterations` for the training dataset. Sources are dataclasses, whose fields
    are the keys of the config section `data`; one of them is `plan`, an execution plan that replaces `default_plan`.

    Args:
        plan: import path or generator function of an execution plan.
        output: directory in which workers record their experience, in shards of whole episodes (`offline/shards.py`),
            with a directory for each policy of several agents; `None`: nothing is recorded.

    Attributes:
        datamodule: that the source belongs to.
        policy: that learns.
        seed: the seed of all draws.
        policy_lag: gradient steps that the experience was behind the policy, the largest since the last report.
    """

    gives: ClassVar[tuple[str, ...]] = ("rollouts", "episodes")  # kinds of data (`kinds_of_data.py`)
    acts: ClassVar[bool] = True  # whether there are workers that act for training
    reads_logp: ClassVar[bool] = True  # whether losses on this experience read the column "action_logp"
    runs_ahead: ClassVar[bool] = False  # whether worker processes continue while the policy learns
    default_plan: ClassVar[Callable[..., Iterator[Any]]]
    dataset: ClassVar[Any] = PlanDataset  # of training, called with (datamodule, policy)
    fragments_per_batch: int = field(default=1, init=False)  # that are held at the same time

    output: str | None = None
    plan: ImportPath | None = None

    def __post_init__(self) -> None:
        """Find the plan.

        Raises:
            ConfigError: the plan is not a function.
        """
        self._own_plan = self.plan is not None
        plan = self.default_plan if self.plan is None else self.plan
        self.run_plan = callable_at("data.plan", plan, (), "a generator function plan(workers, policy)")
        self.datamodule: Any = None
        self.policy: Any = None
        self.seed = self.policy_lag = 0

    def attach(self, datamodule: Any) -> None:
        """Become the source of a `RolloutDataModule`, whose options for workers may be completed here.

        Raises:
            ConfigError: the options do not fit.
        """
        self.datamodule, self.seed = datamodule, datamodule.seed

    def prepare(self, policy: Any) -> None:
        """Refuse what does not fit before a process starts; called at the start of every fit.

        Raises:
            ConfigError: the policy learns from another kind of data.
        """
        check_kind_of_data(type(policy), type(self))
        self.policy = policy

    def start(self) -> None:
        """Make what the source needs beside the workers, which were made just now."""

    def iterations(self, policy: Any) -> Iterator[Any]:
        """What each iteration learns from: the items of `plan(workers, policy, source)`."""
        return record_times(self.run_plan(self.workers, policy, self), self.datamodule.record_time)

    def record_time(self, batch: Any, seconds: float) -> None:
        """Add the time that a batch took to collect; for plans."""
        self.datamodule.record_time(batch, seconds)

    def pop_metrics(self) -> dict[str, float]:
        """Metrics since the last call, by names of the metric registry."""
        policy_lag, self.policy_lag = self.policy_lag, 0
        return {"rollout/policy_lag": float(policy_lag)} if self.runs_ahead else {}

    def state_dict(self) -> dict[str, Any]:
        """Plain data and tensors."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the checkpoint was written."""

    def force_reset(self) -> None:
        """Forget what is in flight, before the workers begin new episodes."""

    def stop(self) -> None:
        """Close what `start` has made; safe to call again."""

    @property
    def workers(self) -> Any:
        """The workers that act for training."""
        return self.datamodule.workers

    @property
    def ranks(self) -> int:
        """How many processes learn."""
        return self.datamodule.ranks


@check_fields("data")
@dataclass(kw_only=True, eq=False)
class SyncSource(Source):
    """Fragments of all workers, collected with the newest weights: for algorithms that learn from their own experience.

    Args:
        dataset: import path or class of the training dataset, called with (datamodule, policy).
        fragments_per_batch: number of consecutive fragments from each environment in a training batch, which then has
            `fragments_per_batch` × workers × environments columns `[T, B, …]`.
        plan: import path or generator function `plan(workers, policy)` of a custom execution plan, which yields
            training batches; `None`: `parallel_rollouts`.

    Raises:
        ConfigError: a number is out of range, or two do not fit together.
    """

    default_plan = staticmethod(parallel_rollouts)

    dataset: ImportPath = PlanDataset
    fragments_per_batch: Count = 1

    def __post_init__(self) -> None:
        """Find dataset and plan."""
        super().__post_init__()
        expected = "a subclass of torch's IterableDataset, called with (datamodule, policy)"
        self.dataset = callable_at("data.dataset", self.dataset, (Iterable,), expected)
        if self.fragments_per_batch > 1:
            if self._own_plan:
                raise ConfigError(
                    f"data.fragments_per_batch={self.fragments_per_batch} with data.plan: the plan decides what a "
                    "batch is; leave one of them out"
                )
            self.run_plan = partial(parallel_rollouts, fragments_per_batch=self.fragments_per_batch)

    def prepare(self, policy: Any) -> None:
        """Refuse a policy that learns from another kind of data, unless the user's own plan gives that kind."""
        if not self._own_plan:
            super().prepare(policy)

    def iterations(self, policy: Any) -> Iterator[Any]:
        """What each iteration learns from: the items of `plan(workers, policy)`."""
        batches = self.run_plan(self.workers, policy)
        if self._own_plan and policy.off_policy:
            batches = map(partial(refuse_rollout, policy), batches)
        return record_times(batches, self.datamodule.record_time)


def refuse_rollout(policy: Any, batch: Any) -> Any:
    """A batch of a user's own plan for a policy that learns from replay.

    Raises:
        ConfigError: it is a rollout fragment.
    """
    if isinstance(typed(batch), Fragment):
        raise ConfigError(
            f"{type(policy).__name__} learns from replayed transitions, and got a rollout: use a ReplayDataModule "
            "(data=replay)"
        )
    return batch


def callable_at(key: str, named: Any, bases: tuple[Any, ...], expected: str) -> Callable[..., Any]:
    """A function, or a class that has one of some base classes, from itself or its import path.

    Raises:
        ConfigError: it is something else.
    """
    found = import_object(named) if isinstance(named, str) else named
    if not callable(found) or (isinstance(found, type) and not issubclass(found, bases)):
        raise ConfigError(f"{key}={short_repr(named)}; expected the import path of {expected}")
    return found
