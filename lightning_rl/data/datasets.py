"""IterableDatasets whose `__iter__` is an execution plan: one item = one Lightning batch = one iteration."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset

from lightning_rl.data.epochs import Iterations
from lightning_rl.data.plans import parallel_rollouts
from lightning_rl.sample_batch import SampleBatch

if TYPE_CHECKING:
    from lightning_rl.data.datamodule import RolloutDataModule

__all__ = ["EvaluationDataset", "OnPolicyDataset", "timed"]

Plan = Callable[[Any, Any], Iterator[SampleBatch]]


class OnPolicyDataset(Iterations):
    """Synchronous rollouts: newest weights, a fragment of every worker, side by side in worker order.

    Args:
        datamodule: holds the workers and takes the metrics.
        policy: whose weights act.
        plan: `plan(workers, policy)` gives the batches without end.
    """

    def __init__(self, datamodule: RolloutDataModule, policy: Any, plan: Plan = parallel_rollouts) -> None:
        self.datamodule, self.policy, self.plan = datamodule, policy, plan

    def iterations(self) -> Iterator[SampleBatch]:
        """What the plan gives."""
        return timed(self.plan(self.datamodule.workers, self.policy), self.datamodule.took)


class EvaluationDataset(IterableDataset[SampleBatch]):
    """One item: the returns and lengths of an evaluation's whole episodes, on environments of their own.

    Args:
        play: gives (return, length) of each.
    """

    def __init__(self, play: Callable[[], list[tuple[float, int]]]) -> None:
        self.play = play

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[SampleBatch]:
        played = self.play()
        yield SampleBatch(
            episode_returns=torch.tensor([ret for ret, _ in played], dtype=torch.float64),
            episode_lengths=torch.tensor([length for _, length in played], dtype=torch.float64),
        )


def timed(items: Iterator[Any], took: Any) -> Iterator[Any]:
    """Pass the items through, telling `took(item, seconds)` how long each one needed."""
    while True:
        started = time.perf_counter()
        try:
            item = next(items)
        except StopIteration:
            return
        took(item, time.perf_counter() - started)
        yield item
