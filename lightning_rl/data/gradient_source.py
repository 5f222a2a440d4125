"""Learning by gradients that workers compute (A3C)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from lightning_rl.data.intrinsic_rewards_check import check_intrinsic_rewards
from lightning_rl.data.kinds_of_data import check_kind_of_data
from lightning_rl.data.plans import async_gradients, record_times
from lightning_rl.data.policy_feeds import trained_policies
from lightning_rl.data.source import Source
from lightning_rl.errors import ConfigError
from lightning_rl.learning.gradients import GradientUpdates
from lightning_rl.rollouts.worker_results import WorkerResult
from lightning_rl.schema.ranges import Count, Whole
from lightning_rl.schema.signatures import check_fields

__all__ = ["GradientSource"]


@check_fields("data")
@dataclass(kw_only=True, eq=False)
class GradientSource(Source):
    """Each worker computes the gradients on its own fragments, and the learner steps with each as soon as it is ready.

    Mnih et al. 2016, arXiv:1602.01783, algorithm 3, with messages in place of memory that threads share.

    Args:
        gradients_per_iteration: gradient steps (or dropped gradients) in one iteration (= Lightning batch), ≥ 1.
        max_policy_lag: maximum number of gradient steps since the learner sent a worker its weights (with several
            policies, the mean); older gradients are counted and dropped. `None`: four times the number of workers.
        plan: import path or generator function `plan(workers, policy)` of a custom execution plan, which yields each
            gradient as a `WorkerResult`; `None`: `async_gradients`.

    Raises:
        ConfigError: a number is out of range.
    """

    default_plan = staticmethod(async_gradients)
    runs_ahead = True

    gradients_per_iteration: Count = 10
    max_policy_lag: Whole | None = None

    def __post_init__(self) -> None:
        """Begin to count."""
        super().__post_init__()
        self.dropped = 0

    def attach(self, datamodule: Any) -> None:
        """Become the source of a DataModule, and bound the policy lag by its number of workers."""
        super().attach(datamodule)
        workers = datamodule.logical_workers(ranks=1)
        self._take_turns = workers > max(1, datamodule.num_workers)  # several act with the same policy object
        self._most_stale = 4 * workers if self.max_policy_lag is None else self.max_policy_lag

    def prepare(self, policy: Any) -> None:
        """Refuse policies and devices that cannot learn from gradients of workers.

        Raises:
            ConfigError: names the cause and what to set.
        """
        trainer: Any = self.datamodule.trainer
        self.policy = policy
        self._check_kinds()
        for each in trained_policies(policy):
            if getattr(each, "has_kl_penalty", False):
                raise ConfigError(
                    f"policy.kl_coef penalizes how far {type(each).__name__} has moved, and data=gradients takes one "
                    "gradient where it has not moved yet: set policy.kl_coef=0, or data=on_policy"
                )
            if self._take_turns:
                check_intrinsic_rewards(each, "workers of one process take turns", "set workers.logical_workers=null")
        if self.ranks > 1:
            raise ConfigError(
                f"data=gradients has one learner, and there are {self.ranks} ranks: set trainer.devices=1"
            )
        if getattr(trainer.precision_plugin, "scaler", None) is not None:
            raise ConfigError(
                "trainer.precision=16-mixed scales losses, and workers do not know by how much: use bf16-mixed or "
                "32-true"
            )

    def iterations(self, policy: Any) -> Iterator[GradientUpdates]:
        """The next gradients of the plan."""
        results = record_times(self.run_plan(self.workers, policy), self.record_time)
        contributions = map(self.check_policy_lag, results)
        while True:
            self._check_kinds()  # others may be trained now
            yield GradientUpdates(islice(contributions, self.gradients_per_iteration))

    def _check_kinds(self) -> None:
        for each in trained_policies(self.policy):
            check_kind_of_data(type(each), type(self))

    def check_policy_lag(self, result: WorkerResult) -> tuple[int, Any, bool]:
        """(worker index, contribution, whether its gradients are new enough to count)."""
        behind = self.policy.gradient_steps - result.gradient_steps
        policy_lag = behind // max(1, len(trained_policies(self.policy)))
        self.policy_lag = max(self.policy_lag, policy_lag)
        fresh = policy_lag <= self._most_stale
        self.dropped += not fresh
        return result.worker_index, result.value, fresh

    def pop_metrics(self) -> dict[str, float]:
        """The largest policy lag of a gradient, and how many were dropped so far."""
        return {**super().pop_metrics(), "rollout/dropped": float(self.dropped)}

    def state_dict(self) -> dict[str, Any]:
        """How many gradients were dropped."""
        return {"dropped": self.dropped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue counting."""
        self.dropped = int(state["dropped"])
