"""Evolution strategies: which worker plays with which perturbations of the policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from lightning_rl.data.source import Source
from lightning_rl.errors import ConfigError
from lightning_rl.rollouts.logical_workers import split_evenly
from lightning_rl.rollouts.rollout_worker import RolloutWorker
from lightning_rl.sample_batch import SampleBatch, concat_samples
from lightning_rl.schema.ranges import Probability, Range
from lightning_rl.schema.signatures import check_fields
from lightning_rl.seeding import derive_seed

__all__ = ["PopulationSource", "evaluate_perturbations", "populations"]


def evaluate_perturbations(worker: RolloutWorker, seeds: Sequence[int], own: Sequence[int] = ()) -> SampleBatch:
    """Play whole episodes with the worker's policy perturbed in both directions, for each seed.

    Args:
        worker: samples one episode of each environment at a time.
        seeds: the seeds of the perturbations.
        own: seeds of the episodes that follow, which the policy plays without a perturbation.

    Returns:
        Rows `[N, …]` of `policy.population_row`, one for each seed, as arrays.
    """
    policy, rows = worker.policy, []
    for seed, size in [*((seed, 1.0) for seed in seeds), *((seed, 0.0) for seed in own)]:
        fragments = []
        for scale in (size, -size):
            with policy.perturb(seed, scale):
                fragments.append(worker.sample())
        rows.append(policy.population_row(seed, fragments, size > 0))
    return concat_samples(rows).numpy()


def populations(workers: Any, policy: Any, population: PopulationSource) -> Iterator[SampleBatch]:
    """Populations, perturbed from the newest weights, without end; rows in worker order."""
    while True:
        workers.sync_weights(policy)
        with workers.rollback_on_error():
            for worker_index, (seeds, own) in population.shares(workers.idle_workers).items():
                workers.submit(worker_index, partial(evaluate_perturbations, seeds=seeds, own=own))
            # A process that is given up meanwhile has no result: the population is smaller then.
            rows = {result.worker_index: result.value for result in iter(workers.next_result, None)}
        yield concat_samples([rows[worker_index] for worker_index in sorted(rows)]).torch()


@check_fields("data")
@dataclass(kw_only=True, eq=False)
class PopulationSource(Source):
    """Workers play whole episodes with perturbed policies; only seeds and returns are sent.

    Args:
        directions: perturbations per population, over all workers and ranks; each is added and subtracted, for one
            episode in each environment of a worker.
        eval_prob: probability in [0, 1], for each direction, of two more episodes in each environment with the
            unperturbed policy (`train/own_return`).
        explore: whether perturbed policies explore; otherwise, they act greedily.
        plan: `plan(workers, policy, population)`, which yields populations; `None`: `populations`.

    Raises:
        ConfigError: a number is out of range.
    """

    gives = ("populations",)
    default_plan = staticmethod(populations)

    directions: Annotated[int, Range(1, 1_000_000)] = 16
    eval_prob: Probability = 0.0
    explore: bool = False
    output: str | None = field(default=None, init=False)  # no worker gives samples

    def attach(self, datamodule: Any) -> None:
        """Become the source of a DataModule, whose workers play one whole episode at a time.

        Raises:
            ConfigError: its workers do not give whole episodes.
        """
        super().attach(datamodule)
        options = datamodule.worker_options
        for key, expected in (("batch_mode", "complete_episodes"), ("fragment_length", 1)):
            if options.setdefault(key, expected) != expected:
                raise ConfigError(
                    f"workers.{key}={options[key]}: a perturbation is judged by one episode of each environment; set "
                    f"it to {expected}, or take workers=whole_episodes"
                )
        options["explore"] = self.explore

    def prepare(self, policy: Any) -> None:
        """Refuse a policy that cannot learn from populations, and directions that do not divide by the workers."""
        super().prepare(policy)
        workers = self.datamodule.logical_workers()
        if self.directions % self.ranks or self.directions < workers:
            raise ConfigError(
                f"data.directions={self.directions} for {workers} workers of {self.ranks} ranks: give a multiple of "
                f"{self.ranks}, at least {workers}"
            )

    def shares(self, workers: Sequence[int]) -> dict[int, tuple[list[int], list[int]]]:
        """Worker index → seeds of its perturbations in this iteration, and seeds of rows without a perturbation.

        A seed depends on the iteration, the worker and its number there, not on where the worker runs.
        """
        iteration = self.policy.iterations
        counts = split_evenly(self.directions // self.ranks, len(workers))
        shares = {}
        for worker, count in zip(workers, counts, strict=True):
            seeds = [derive_seed(self.seed, "perturbation", iteration, worker, number) for number in range(count)]
            shares[worker] = (seeds, [seed for seed in seeds if seed / 2**63 < self.eval_prob])
        return shares
