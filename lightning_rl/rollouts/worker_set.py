"""Several rollout workers behind one interface: in this process, or in Ray actors (`ray/worker_set.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lightning_rl.envs.creator import EnvCreator
from lightning_rl.rollouts.episodes import concat_episodes
from lightning_rl.rollouts.logical_workers import split_evenly
from lightning_rl.rollouts.rollout_worker import RolloutWorker
from lightning_rl.rollouts.worker_results import SampleReference, WorkerResult
from lightning_rl.sample_batch import concat_samples, env_steps

__all__ = ["RolloutWorker", "WorkerSet"]


class WorkerSet:
    """Rollout workers in this process; they act with the learner's own policy object, so with its newest weights.

    Args:
        env: how to make the environments.
        policy: acts in all environments.
        worker_indices: the indices of the logical workers that this set holds. A worker's data depend on its index
            only, never on where it runs.
        worker_options: keywords of `RolloutWorker`.
    """

    num_workers = 0

    def __init__(
        self, env: EnvCreator, policy: Any, worker_indices: Sequence[int] = (0,), **worker_options: Any
    ) -> None:
        self.policy = policy
        self.version = self._gradient_steps = self._turn = 0
        self._submitted: dict[int, Callable[[Any], Any]] = {}
        self.workers = [RolloutWorker(env, policy, worker_index=index, **worker_options) for index in worker_indices]

    @classmethod
    def from_workers(cls, workers: Sequence[RolloutWorker]) -> WorkerSet:
        """A set of workers that exist already; the learner's policy object is that of the first."""
        worker_set = cls(workers[0].env_creator, workers[0].policy, worker_indices=())
        worker_set.workers = list(workers)
        return worker_set

    def local_worker(self) -> RolloutWorker:
        """The first worker of this process."""
        return self.workers[0]

    def remote_workers(self) -> list[Any]:
        """Workers in other processes: none here."""
        return []

    def sync_weights(self, policy: Any) -> None:
        """Let the workers act with `policy`'s weights from the next fragment on."""
        self.version += 1
        self._gradient_steps = policy.gradient_steps
        if policy is not self.policy:
            self.policy.set_weights(policy.get_weights())
            self.policy.env_steps = policy.env_steps

    # -- sampling -----------------------------------------------------------------------------------------------------
    def sample(self) -> Any:
        """One fragment of every worker, side by side in worker order."""
        with self.rollback_on_error():
            return concat_samples([worker.sample() for worker in self.workers])

    def sample_async(self) -> Iterator[Any]:
        """Fragments as they become ready, without end; in one process that is worker order."""
        while True:
            yield from self.next_sample().fragments

    @contextmanager
    def rollback_on_error(self) -> Iterator[None]:
        """A block that counts as a whole: if it raises, the workers return to their states from before it."""
        before = [worker.position() for worker in self.workers]
        try:
            yield
        except BaseException:
            for worker, position in zip(self.workers, before, strict=True):
                worker.start_at(position)
            raise

    def submit_samples(
        self, per_process: int, env_steps: int, max_inflight: int | None = None, in_order: bool = False
    ) -> None:
        """Note how far the run is; workers in this process sample when `next_sample` is called."""
        self.policy.env_steps = env_steps

    def next_sample(self, in_order: bool = False) -> SampleReference:
        """A fragment of the next worker in turn."""
        fragment = self._next_worker().sample()
        return SampleReference([fragment], env_steps(fragment), self._gradient_steps, nbytes=fragment.nbytes)

    def has_sample(self, in_order: bool = False) -> bool:
        """Whether `next_sample` would give one without waiting: never, it has to act first."""
        return False

    def fetch(self, reference: SampleReference) -> list[Any]:
        """The fragments of a reference, one of each worker."""
        return reference.fragments

    @property
    def oldest_gradient_steps(self) -> int | None:
        """Gradient steps of the oldest weights that samples in flight act with: none are ever in flight here."""
        return None

    @property
    def inflight_samples(self) -> int:
        """Requests to sample that were submitted and not taken by `next_sample` yet: none here."""
        return 0

    def drain(self) -> None:
        """Wait for the samples in flight, and discard them with the episodes that ended in them."""
        self.get_metrics()
        self.cancel()

    def cancel(self) -> None:
        """Discard what is in flight: calls that `next_result` has not done yet."""
        self._submitted.clear()

    # -- calls of workers ---------------------------------------------------------------------------------------------
    @property
    def worker_indices(self) -> list[int]:
        """Indices of the workers, in order."""
        return [worker.worker_index for worker in self.workers]

    @property
    def idle_workers(self) -> list[int]:
        """Indices of the workers without a submitted call, in order."""
        return [index for index in self.worker_indices if index not in self._submitted]

    def submit(self, worker_index: int, fn: Callable[[Any], Any]) -> None:
        """Have `next_result` call `fn(worker)`; the worker then acts with the policy's weights at that time."""
        self._submitted[worker_index] = fn

    def next_result(self) -> WorkerResult | None:
        """Do the call of the next worker in turn that has one; `None` if none has."""
        for _ in self.workers:
            worker = self._next_worker()
            if (fn := self._submitted.pop(worker.worker_index, None)) is not None:
                return WorkerResult(worker.worker_index, fn(worker), self._gradient_steps)
        return None

    def _next_worker(self) -> RolloutWorker:
        """The next worker in turn."""
        worker = self.workers[self._turn]
        self._turn = (self._turn + 1) % len(self.workers)
        return worker

    def foreach_worker(self, fn: Callable[[RolloutWorker], Any]) -> list[Any]:
        """`fn(worker)` of every worker, results in worker order."""
        return [fn(worker) for worker in self.workers]

    def run_episodes(self, count: int) -> list[tuple[float, int]]:
        """`count` whole episodes spread over the workers; (return, length) of each, in worker order."""
        indices = self.worker_indices
        shares = dict(zip(indices, split_evenly(count, len(indices)), strict=True))
        played = self.foreach_worker(lambda worker: worker.run_episodes(shares[worker.worker_index]))
        return [episode for episodes in played for episode in episodes]

    # -- metrics and state --------------------------------------------------------------------------------------------
    def get_metrics(self) -> dict[str, Any]:
        """Returns and lengths of the episodes that ended since the last call, in worker order."""
        return concat_episodes([worker.get_metrics() for worker in self.workers])

    def get_health(self) -> dict[str, float]:
        """Processes and environments that were replaced so far, under their metric names."""
        return {"sys/worker_restarts": 0.0, "sys/env_restarts": float(sum(w.restarts.count for w in self.workers))}

    def force_reset(self) -> None:
        """Let every environment begin its next fragment with a seeded reset, and the first worker sample next."""
        self._turn = 0
        self._submitted.clear()
        self.foreach_worker(lambda worker: worker.force_reset())

    def positions(self) -> dict[str, dict[str, int]]:
        """Where workers that take the place of these begin, by worker index; `load_state_dict` takes it as well."""
        return {str(worker.worker_index): worker.position() for worker in self.workers}

    def state_dict(self) -> dict[str, Any]:
        """What each worker has to remember, by worker index; and whose turn is next, unless it is the first one's."""
        states = {str(worker.worker_index): worker.state_dict() for worker in self.workers}
        if self._turn:
            states[str(self.workers[self._turn].worker_index)]["is_next"] = True
        return states

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; workers that `state` does not know start from scratch."""
        self._turn = 0
        for place, worker in enumerate(self.workers):
            if (own := state.get(str(worker.worker_index))) is not None:
                worker.load_state_dict(own)
                if own.get("is_next", False):
                    self._turn = place

    def stop_when(self, stopping: Callable[[], bool]) -> None:
        """Raise `KeyboardInterrupt` in `run_episodes` when `stopping()` is true.

        A fragment is completed, unless it has waited for the ends of its episodes for `LONGEST_EPISODE` steps.
        """
        for worker in self.workers:
            worker.stopping = stopping

    def stop(self) -> None:
        """Close all environments."""
        self.foreach_worker(lambda worker: worker.stop())
        self.workers = []
