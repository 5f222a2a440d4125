"""What Lightning is given where nobody waits for the slowest worker: training batches as soon as there are any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from lightning_rl.data.datasets import timed
from lightning_rl.data.epochs import Iterations
from lightning_rl.sample_batch import SampleBatch

if TYPE_CHECKING:
    from lightning_rl.data.async_datamodule import AsyncDataModule

__all__ = ["AsyncDataset", "batches_as_they_come"]

Plan = Callable[[Any, Any, Any], Iterator[SampleBatch]]


def batches_as_they_come(workers: Any, policy: Any, fragments: AsyncDataModule) -> Iterator[SampleBatch]:
    """Receive until there is a training batch, ask for more, then learn from it; and again."""
    while True:
        while fragments.wants_more:
            fragments.receive()
        fragments.submit_samples()  # so that workers act while the policy learns
        yield from fragments.next_batch()


class AsyncDataset(Iterations):
    """Training batches of fragments that were asked for ahead.

    Args:
        datamodule: holds the workers, and what came of them.
        policy: that learns.
        plan: `plan(workers, policy, datamodule)` gives the batches without end.
    """

    def __init__(self, datamodule: AsyncDataModule, policy: Any, plan: Plan = batches_as_they_come) -> None:
        self.datamodule, self.policy, self.plan = datamodule, policy, plan

    def iterations(self) -> Iterator[SampleBatch]:
        """What the plan gives."""
        return timed(self.plan(self.datamodule.workers, self.policy, self.datamodule), self.datamodule.took)
