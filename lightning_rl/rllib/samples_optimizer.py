"""Training loops in objects, for workers made by hand: collect, learn, send the weights back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from typing import Any

from lightning_rl.data.plans import async_gradients, record_times
from lightning_rl.errors import check_at_least_one
from lightning_rl.learning.gradients import GradientUpdates
from lightning_rl.rllib.plan_verbs import concat_batches, rollouts
from lightning_rl.rollouts.rollout_worker import RolloutWorker
from lightning_rl.rollouts.worker_results import WorkerResult
from lightning_rl.rollouts.worker_set import WorkerSet
from lightning_rl.sample_batch import env_steps

__all__ = ["AsyncGradientsOptimizer", "AsyncSamplesOptimizer", "PolicyOptimizer", "SyncSamplesOptimizer"]


class PolicyOptimizer:
    """What such objects have in common: `step()`, which a subclass defines, and `stats()`.

    Args:
        local_worker: whose policy learns; without remote workers it samples as well.
        remote_workers: actors of `RolloutWorker.as_remote`.
    """

    def __init__(self, local_worker: RolloutWorker, remote_workers: Sequence[Any] = ()) -> None:
        self.local_worker, self.remote_workers = local_worker, list(remote_workers)
        self.workers = _actors(remote_workers) if remote_workers else WorkerSet.from_workers([local_worker])
        self.num_steps_sampled = self.num_steps_trained = 0
        self.sample_seconds = self.learn_seconds = 0.0

    def step(self) -> dict[str, float]:
        """Collect and learn once; the metrics of that."""
        raise NotImplementedError  # abstract

    def stats(self) -> dict[str, Any]:
        """Rows so far, and milliseconds of the last step."""
        return {
            "num_steps_sampled": self.num_steps_sampled,
            "num_steps_trained": self.num_steps_trained,
            "sample_time_ms": 1000 * self.sample_seconds,
            "learn_time_ms": 1000 * self.learn_seconds,
        }


class SyncSamplesOptimizer(PolicyOptimizer):
    """Each step: newest weights to all, a sample of every worker until there are enough rows, one `learn_on_batch`.

    Args:
        local_worker, remote_workers: see `PolicyOptimizer`.
        train_batch_size: least number of rows per step.
        num_sgd_iter: passes over the rows; `None`: the policy's.
        sgd_minibatch_size: rows of a gradient step; 0: the policy's number of minibatches.
    """

    mode = "bulk_sync"

    def __init__(
        self,
        local_worker: RolloutWorker,
        remote_workers: Sequence[Any] = (),
        train_batch_size: int = 200,
        num_sgd_iter: int | None = None,
        sgd_minibatch_size: int = 0,
    ) -> None:
        super().__init__(local_worker, remote_workers)
        if num_sgd_iter:
            local_worker.policy.passes = num_sgd_iter
        self.sgd_minibatch_size = sgd_minibatch_size
        fragments = rollouts(self.workers, local_worker.policy, self.mode)
        self._batches = concat_batches(fragments, train_batch_size)

    def step(self) -> dict[str, float]:
        """One batch learned from; what `learn_on_batch` returned."""
        started = time.perf_counter()
        batch = next(self._batches)
        collected = time.perf_counter()
        if self.sgd_minibatch_size:
            self.local_worker.policy.minibatches = max(1, round(env_steps(batch) / self.sgd_minibatch_size))
        result = self.local_worker.learn_on_batch(batch)
        self.sample_seconds, self.learn_seconds = collected - started, time.perf_counter() - collected
        self.num_steps_sampled += env_steps(batch)
        self.num_steps_trained += env_steps(batch)
        return result


class AsyncSamplesOptimizer(SyncSamplesOptimizer):
    """The same with samples as they become ready: no update waits for the slowest worker, so some are older.

    For policies that correct for that. Espeholt et al. 2018, arXiv:1802.01561.
    """

    mode = "async"


class AsyncGradientsOptimizer(PolicyOptimizer):
    """Workers compute gradients of their samples, and each is a step as soon as it is there.

    Only the worker that it came from gets the new weights. Mnih et al. 2016, arXiv:1602.01783.

    Args:
        local_worker, remote_workers: see `PolicyOptimizer`.
        grads_per_step: gradients per step.

    Raises:
        ConfigError: `grads_per_step` is below 1.
    """

    def __init__(
        self, local_worker: RolloutWorker, remote_workers: Sequence[Any] = (), grads_per_step: int = 100
    ) -> None:
        check_at_least_one(grads_per_step=grads_per_step)
        super().__init__(local_worker, remote_workers)
        self.grads_per_step = grads_per_step
        self._results = record_times(async_gradients(self.workers, local_worker.policy), self._record_time)

    def step(self) -> dict[str, float]:
        """That many gradients stepped with; means of their metrics."""
        policy, self.sample_seconds = self.local_worker.policy, 0.0
        contributions = ((each.worker_index, each.value, True) for each in islice(self._results, self.grads_per_step))
        policy.training_step(GradientUpdates(contributions))
        self.learn_seconds = policy.learn_seconds
        return policy.iteration_metrics

    def _record_time(self, contribution: WorkerResult, seconds: float) -> None:
        self.sample_seconds += seconds
        self.num_steps_sampled += contribution.value.env_steps
        self.num_steps_trained += contribution.value.env_steps


def _actors(remote_workers: Sequence[Any]) -> Any:
    from lightning_rl.rollouts.ray.actors import ActorSet

    return ActorSet(remote_workers)
