"""What Lightning is given instead of batches where workers compute gradients: iterations that take them as ready."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from lightning_rl.data.datasets import timed
from lightning_rl.data.epochs import Iterations
from lightning_rl.data.plans import for_each, take
from lightning_rl.rollouts.asking import Answered

if TYPE_CHECKING:
    from lightning_rl.data.gradient_datamodule import GradientDataModule

__all__ = ["GradientDataset", "async_gradients"]


def async_gradients(workers: Any, policy: Any) -> Iterator[Answered]:
    """Contributions as they are ready, without end.

    Whoever gives one gets the weights of then, those after its own step, and goes on at once; nobody else does.
    """
    while True:
        if idle := workers.idle:
            workers.sync_weights(policy)
        for worker_index in idle:
            workers.ask(worker_index, methodcaller("contribute"))
        if (answered := workers.answer()) is not None:
            yield answered


class GradientDataset(Iterations):
    """Items are calls that let the policy step with the next gradients: one Lightning batch is several of them.

    Args:
        datamodule: holds the workers, and judges what is too old.
        policy: that learns.
        plan: `plan(workers, policy)` gives contributions without end, as `Answered`.
    """

    def __init__(self, datamodule: GradientDataModule, policy: Any, plan: Any = async_gradients) -> None:
        self.datamodule, self.policy, self.plan = datamodule, policy, plan

    def iterations(self) -> Iterator[Callable[[], Any]]:
        """Each takes what the plan gives next."""
        data = self.datamodule
        answers = timed(self.plan(data.workers, self.policy), data.took)
        contributions = for_each(answers, data.judged)
        while True:
            yield functools.partial(self.policy.learn_on_gradients, take(contributions, data.gradients_per_iteration))
