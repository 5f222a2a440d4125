"""A training loop in an object, for workers made by hand: collect, learn, send the weights back."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from lightning_rl.data.execution import concat_batches, env_steps, parallel_rollouts
from lightning_rl.rollouts.rollout_worker import RolloutWorker
from lightning_rl.sample_batch import SampleBatch

__all__ = ["AsyncSamplesOptimizer", "SyncSamplesOptimizer"]


class SyncSamplesOptimizer:
    """Each step: newest weights to all, a sample of every worker until there are enough rows, one `learn_on_batch`.

    Args:
        local_worker: whose policy learns; without remote workers it samples, too.
        remote_workers: actors of `RolloutWorker.as_remote`.
        train_batch_size: least number of rows per step.
    """

    mode = "bulk_sync"

    def __init__(
        self, local_worker: RolloutWorker, remote_workers: Sequence[Any] = (), train_batch_size: int = 200
    ) -> None:
        self.local_worker, self.remote_workers = local_worker, list(remote_workers)
        self.num_steps_sampled = self.num_steps_trained = 0
        self.sample_seconds = self.learn_seconds = 0.0
        workers = _actors(remote_workers) if remote_workers else _Local(local_worker)
        rollouts = parallel_rollouts(workers, local_worker.policy, self.mode)
        self._batches = concat_batches(rollouts, train_batch_size)

    def step(self) -> dict[str, float]:
        """One batch learned from; what `learn_on_batch` returned."""
        started = time.perf_counter()
        batch = next(self._batches)
        collected = time.perf_counter()
        result = self.local_worker.learn_on_batch(batch)
        self.sample_seconds, self.learn_seconds = collected - started, time.perf_counter() - collected
        self.num_steps_sampled += env_steps(batch)
        self.num_steps_trained += env_steps(batch)
        return result

    def stats(self) -> dict[str, float]:
        """Rows so far, and milliseconds of the last step."""
        return {
            "num_steps_sampled": self.num_steps_sampled,
            "num_steps_trained": self.num_steps_trained,
            "sample_time_ms": 1000 * self.sample_seconds,
            "learn_time_ms": 1000 * self.learn_seconds,
        }


class AsyncSamplesOptimizer(SyncSamplesOptimizer):
    """The same with samples as they become ready: nobody waits for the slowest worker, so some are a few updates old.

    For policies that correct for that. Espeholt et al. 2018, arXiv:1802.01561.
    """

    mode = "async"


class _Local:
    """The local worker as the only one; it acts with the policy that learns."""

    def __init__(self, worker: RolloutWorker) -> None:
        self.worker = worker

    def sync_weights(self, policy: Any) -> None:
        """Nothing to do."""

    def sample(self) -> SampleBatch:
        return self.worker.sample()

    def sample_async(self) -> Iterator[SampleBatch]:
        while True:
            yield self.worker.sample()


def _actors(remote_workers: Sequence[Any]) -> Any:
    # By name: Ray is imported by nobody who does not ask for it.
    return importlib.import_module("lightning_rl.rollouts.ray_workers").ActorSet(remote_workers)
