"""What Lightning is given instead of batches where workers compute gradients: iterations that take them as ready."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from lightning_rl.data.datasets import timed
from lightning_rl.data.epochs import Iterations
from lightning_rl.data.plans import for_each, take
from lightning_rl.rollouts.worker_results import WorkerResult

if TYPE_CHECKING:
    from lightning_rl.data.gradient_datamodule import GradientDataModule

__all__ = ["GradientDataset", "async_gradients"]


def async_gradients(workers: Any, policy: Any) -> Iterator[WorkerResult]:
    """Gradients of workers as they become ready, without end.

    The worker that gave one gets the weights after the step with it, and goes on at once; the others keep theirs.
    """
    while True:
        if idle := workers.idle_workers:
            workers.sync_weights(policy)
        for worker_index in idle:
            workers.submit(worker_index, methodcaller("contribute"))
        if (result := workers.next_result()) is not None:
            yield result


class GradientDataset(Iterations):
    """Items are calls that let the policy step with the next gradients: one Lightning batch is several of them.

    Args:
        datamodule: holds the workers, and judges what is too old.
        policy: that learns.
        plan: `plan(workers, policy)` gives contributions without end, as `WorkerResult`.
    """

    def __init__(self, datamodule: GradientDataModule, policy: Any, plan: Any = async_gradients) -> None:
        self.datamodule, self.policy, self.plan = datamodule, policy, plan

    def iterations(self) -> Iterator[Callable[[], Any]]:
        """Each takes what the plan gives next."""
        data = self.datamodule
        answers = timed(self.plan(data.workers, self.policy), data.took)
        contributions = for_each(answers, data.check_staleness)
        while True:
            yield functools.partial(self.policy.learn_on_gradients, take(contributions, data.gradients_per_iteration))
