"""What Lightning is given instead of rollouts where a population is judged: its perturbations, with their returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lightning_rl.data.datasets import timed
from lightning_rl.data.epochs import Iterations
from lightning_rl.rollouts.rollout_worker import RolloutWorker
from lightning_rl.sample_batch import SampleBatch, concat_samples

if TYPE_CHECKING:
    from lightning_rl.data.population_datamodule import PopulationDataModule

__all__ = ["PopulationDataset", "judged", "populations"]


def judged(worker: RolloutWorker, seeds: Sequence[int], own: Sequence[int] = ()) -> SampleBatch:
    """Rows `[N, …]`: whole episodes with the worker's policy moved one way and the other, for each seed.

    Args:
        worker: samples one episode of each environment at a time.
        seeds: of the perturbations.
        own: as many rows more of the policy as it is; their entries have no meaning.
    """
    policy, rows = worker.policy, []
    for seed, size in [*((seed, 1.0) for seed in seeds), *((seed, 0.0) for seed in own)]:
        fragments = []
        for scale in (size, -size):
            with policy.perturbed(seed, scale):
                fragments.append(worker.sample())
        rows.append(policy.judged(seed, fragments, size > 0))
    return concat_samples(rows).numpy()


def populations(workers: Any, policy: Any, population: PopulationDataModule) -> Iterator[SampleBatch]:
    """Each population judged by the newest weights; rows in worker order, whoever finishes first."""
    while True:
        workers.sync_weights(policy)
        with workers.rollback_on_error():
            for worker_index, (seeds, own) in population.shares(workers.idle_workers).items():
                workers.submit(worker_index, partial(judged, seeds=seeds, own=own))
            # A process that is given up meanwhile has no result: the population is smaller then.
            rows = {result.worker_index: result.value for result in iter(workers.next_result, None)}
        yield concat_samples([rows[worker_index] for worker_index in sorted(rows)]).torch()


class PopulationDataset(Iterations):
    """One item is one population: one step.

    Args:
        datamodule: holds the workers, and says who tries what.
        policy: that is perturbed.
        plan: `plan(workers, policy, datamodule)` gives populations without end.
    """

    def __init__(self, datamodule: PopulationDataModule, policy: Any, plan: Any = populations) -> None:
        self.datamodule, self.policy, self.plan = datamodule, policy, plan

    def iterations(self) -> Iterator[SampleBatch]:
        """What the plan gives."""
        return timed(self.plan(self.datamodule.workers, self.policy, self.datamodule), self.datamodule.took)
