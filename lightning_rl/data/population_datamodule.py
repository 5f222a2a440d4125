"""The DataModule of evolution strategies: which worker plays with which perturbations of the policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any

from lightning_rl.data.datamodule import RolloutDataModule
from lightning_rl.data.kinds_of_data import check_kind_of_data
from lightning_rl.data.plans import record_times
from lightning_rl.errors import ConfigError
from lightning_rl.rollouts.logical_workers import logical_workers, split_evenly
from lightning_rl.rollouts.rollout_worker import RolloutWorker
from lightning_rl.sample_batch import SampleBatch, concat_samples
from lightning_rl.schema.ranges import Probability, Range, Seed
from lightning_rl.schema.signatures import ImportPath
from lightning_rl.seeding import derive_seed

__all__ = ["PopulationDataModule", "evaluate_perturbations", "populations"]


def evaluate_perturbations(worker: RolloutWorker, seeds: Sequence[int], own: Sequence[int] = ()) -> SampleBatch:
    """Play whole episodes with the worker's policy perturbed in both directions, for each seed.

    Args:
        worker: samples one episode of each environment at a time.
        seeds: of the perturbations.
        own: for each entry, episodes of the policy without a perturbation follow; the entries are their `seeds`.

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


def populations(workers: Any, policy: Any, population: PopulationDataModule) -> Iterator[SampleBatch]:
    """Populations, perturbed from the newest weights, without end; rows in worker order."""
    while True:
        workers.sync_weights(policy)
        with workers.rollback_on_error():
            for worker_index, (seeds, own) in population.shares(workers.idle_workers).items():
                workers.submit(worker_index, partial(evaluate_perturbations, seeds=seeds, own=own))
            # A process that is given up meanwhile has no result: the population is smaller then.
            rows = {result.worker_index: result.value for result in iter(workers.next_result, None)}
        yield concat_samples([rows[worker_index] for worker_index in sorted(rows)]).torch()


class PopulationDataModule(RolloutDataModule):
    """Workers play whole episodes with perturbed policies; only seeds and returns are sent.

    Args:
        directions: perturbations of one population, over all workers and ranks; each is added and subtracted, for one
            episode of each environment of a worker.
        eval_prob: in [0, 1]; probability, for each direction, of two more episodes of each environment with the policy
            itself (`train/own_return`).
        explore: whether perturbed policies also explore; else they take their best actions.
        env, workers, evaluation, plan, seed, callbacks: as `RolloutDataModule`.

    Raises:
        ConfigError: a number is out of range, or workers do not give whole episodes.
    """

    feeds = "populations"
    default_plan = staticmethod(populations)

    def __init__(
        self,
        env: Any,
        workers: Any = None,
        evaluation: Any = None,
        *,
        directions: Annotated[int, Range(1, 1_000_000)] = 16,
        eval_prob: Probability = 0.0,
        explore: bool = False,
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
        for key, expected in (("batch_mode", "complete_episodes"), ("fragment_length", 1)):
            if self.worker_options.setdefault(key, expected) != expected:
                raise ConfigError(
                    f"workers.{key}={self.worker_options[key]}: a perturbation is judged by one episode of each "
                    f"environment; set it to {expected}, or take workers=whole_episodes"
                )
        self.worker_options["explore"] = explore
        self.directions, self.eval_prob = directions, eval_prob

    def setup(self, stage: str) -> None:
        """Make the workers; a policy that cannot learn from populations is refused before."""
        policy = self._policy()
        if stage == "fit":
            check_kind_of_data(type(policy), type(self))
            assert self.trainer is not None
            ranks = self.trainer.world_size
            workers = logical_workers(self._logical, self.num_workers, ranks)
            if self.directions % ranks or self.directions < workers:
                raise ConfigError(
                    f"data.directions={self.directions} for {workers} workers of {ranks} ranks: give a multiple of "
                    f"{ranks}, at least {workers}"
                )
        super().setup(stage)

    def training_batches(self, policy: Any) -> Iterator[SampleBatch]:
        """The items of the training dataset: a population is one iteration, and one gradient step."""
        return record_times(self.plan(self.workers, policy, self), self.record_time)

    def shares(self, workers: Sequence[int]) -> dict[int, tuple[list[int], list[int]]]:
        """Worker index → seeds of its perturbations in this iteration, and seeds of rows without a perturbation.

        A seed depends on the iteration, the worker and its number there, not on where the worker runs.
        """
        assert self.trainer is not None
        iteration = self._policy().iterations
        counts = split_evenly(self.directions // self.trainer.world_size, len(workers))
        shares = {}
        for worker, count in zip(workers, counts, strict=True):
            seeds = [derive_seed(self.seed, "perturbation", iteration, worker, number) for number in range(count)]
            shares[worker] = (seeds, [seed for seed in seeds if seed / 2**63 < self.eval_prob])
        return shares
