"""The DataModule of learning by gradients that workers compute (A3C)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from lightning_rl.data.datamodule import RolloutDataModule
from lightning_rl.data.intrinsic_rewards_check import check_intrinsic_rewards
from lightning_rl.data.kinds_of_data import check_kind_of_data
from lightning_rl.data.plans import async_gradients, for_each, record_times, take
from lightning_rl.data.policy_feeds import trained_policies
from lightning_rl.errors import ConfigError
from lightning_rl.rollouts.logical_workers import logical_workers
from lightning_rl.rollouts.worker_results import WorkerResult
from lightning_rl.schema.ranges import Count, Seed, Whole
from lightning_rl.schema.signatures import ImportPath

__all__ = ["GradientDataModule"]


class GradientDataModule(RolloutDataModule):
    """Each worker computes the gradients on its own fragments, and the learner steps with each as soon as it is ready.

    Mnih et al. 2016, arXiv:1602.01783, algorithm 3, with messages in place of memory that threads share.

    Args:
        gradients_per_iteration: gradient steps (or dropped gradients) in one iteration (= Lightning batch), ≥ 1.
        max_staleness: gradient steps that the learner may have taken since it sent a worker its weights (of several
            policies their mean); a gradient of older weights is counted and dropped. `None`: four times the number of
            workers.
        plan: import path or generator function `plan(workers, policy)` of an execution plan of your own, which gives
            each gradient as a `WorkerResult`; `None`: `async_gradients`.
        env, workers, evaluation, seed, callbacks: as `RolloutDataModule`.

    Raises:
        ConfigError: a number is out of range.
    """

    default_plan = staticmethod(async_gradients)
    runs_ahead = True

    def __init__(
        self,
        env: Any,
        workers: Any = None,
        evaluation: Any = None,
        *,
        gradients_per_iteration: Count = 10,
        max_staleness: Whole | None = None,
        plan: ImportPath | None = None,
        seed: Seed = 0,
        callbacks: Any = (),
    ) -> None:
        super().__init__(
            env,
            workers,
            evaluation,
            plan=plan,
            seed=seed,
            callbacks=callbacks,
        )
        self.gradients_per_iteration = gradients_per_iteration
        workers_here = logical_workers(self._logical, self.num_workers, ranks=1)
        self._take_turns = workers_here > max(1, self.num_workers)  # several act with the same policy object
        self.max_staleness = 4 * workers_here if max_staleness is None else max_staleness
        self.dropped = 0
        self._staleness = 0  # the largest since the last report

    def setup(self, stage: str) -> None:
        """Make the workers; a policy that cannot learn from their gradients is refused before."""
        if stage == "fit":
            self.check_fits(self._policy())
        super().setup(stage)

    def check_fits(self, policy: Any) -> None:
        """Refuse policies and devices that cannot learn from gradients of workers.

        Raises:
            ConfigError: names the cause and what to set.
        """
        assert self.trainer is not None
        self._check_kinds(policy)
        for each in trained_policies(policy):
            if getattr(each, "has_kl_penalty", False):
                raise ConfigError(
                    f"policy.kl_coef penalises how far {type(each).__name__} has moved, and data=gradients takes one "
                    "gradient where it has not moved yet: set policy.kl_coef=0, or data=on_policy"
                )
            if self._take_turns:
                check_intrinsic_rewards(each, "workers of one process take turns", "set workers.logical_workers=null")
        if self.trainer.world_size > 1:
            raise ConfigError(
                f"data=gradients has one learner, and there are {self.trainer.world_size} ranks: set trainer.devices=1"
            )
        if getattr(self.trainer.precision_plugin, "scaler", None) is not None:
            raise ConfigError(
                "trainer.precision=16-mixed scales losses, and workers do not know by how much: use bf16-mixed or "
                "32-true"
            )

    def training_batches(self, policy: Any) -> Iterator[Callable[[], Any]]:
        """The items of the training dataset: calls that let the policy step with the next gradients of the plan."""
        results = record_times(self.plan(self.workers, policy), self.record_time)
        contributions = for_each(results, self.check_staleness)
        while True:
            self._check_kinds(policy)  # others may be trained now
            yield partial(policy.learn_on_gradients, take(contributions, self.gradients_per_iteration))

    def _check_kinds(self, policy: Any) -> None:
        for each in trained_policies(policy):
            check_kind_of_data(type(each), type(self))

    def check_staleness(self, result: WorkerResult) -> tuple[int, Any, bool]:
        """(worker index, contribution, whether its gradients are new enough to count)."""
        policy = self._policy()
        staleness = (policy.gradient_steps - result.gradient_steps) // max(1, len(trained_policies(policy)))
        self._staleness = max(self._staleness, staleness)
        fresh = staleness <= self.max_staleness
        self.dropped += not fresh
        return result.worker_index, result.value, fresh

    def pop_iteration_metrics(self) -> dict[str, float]:
        """The metrics of the rollouts, the largest staleness of a gradient, and how many were dropped so far."""
        staleness, self._staleness = self._staleness, 0
        own = {"rollout/staleness": float(staleness), "rollout/dropped": float(self.dropped)}
        return {**super().pop_iteration_metrics(), **own}

    def state_dict(self) -> dict[str, Any]:
        """The state of the rollouts, and how many gradients were dropped."""
        return {**super().state_dict(), "dropped": self.dropped}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where the checkpoint was written."""
        super().load_state_dict(state_dict)
        self.dropped = int(state_dict["dropped"])
