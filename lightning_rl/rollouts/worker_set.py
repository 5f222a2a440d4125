"""Several rollout workers with one set of verbs: in this process, or in Ray actors (`ray/worker_set.py`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from lightning_rl.envs.creator import EnvCreator
from lightning_rl.rollouts.asking import AskingHere
from lightning_rl.rollouts.gather import Receipt, joined, merged, split
from lightning_rl.rollouts.processes.limits import limits_of
from lightning_rl.rollouts.rollout_worker import RolloutWorker
from lightning_rl.sample_batch import SampleBatch, env_steps

__all__ = ["WorkerSet", "make_worker_set"]


class WorkerSet(AskingHere):
    """Rollout workers in this process; acting with the learner's own policy object, they have its newest weights.

    Args:
        env: how to make the environments.
        policy: what acts in all of them.
        worker_indices: which logical workers live here. A worker's data depend on its index only, never on where it
            runs.
        worker_options: keywords of `RolloutWorker`.
    """

    num_workers = 0

    def __init__(
        self, env: EnvCreator, policy: Any, worker_indices: Sequence[int] = (0,), **worker_options: Any
    ) -> None:
        self.policy = policy
        self.version = self._gradient_steps = self._turn = 0
        self._asked = deque()
        self.workers = [RolloutWorker(env, policy, worker_index=index, **worker_options) for index in worker_indices]

    def local_worker(self) -> RolloutWorker:
        """The first worker of this process."""
        return self.workers[0]

    def remote_workers(self) -> list[Any]:
        """Workers in other processes: none here."""
        return []

    def sync_weights(self, policy: Any) -> None:
        """Make `policy`'s weights the ones that act from the next fragment on."""
        self.version += 1
        self._gradient_steps = policy.gradient_steps
        if policy is not self.policy:
            self.policy.set_weights(policy.get_weights())
            self.policy.env_steps = policy.env_steps

    def sample(self) -> SampleBatch:
        """One fragment of every worker, side by side in worker order."""
        with self.whole():
            return joined([worker.sample() for worker in self.workers])

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Inside is a round that is used as a whole: where it raises, it has not been, and a resumed run begins it."""
        before = self.state_dict()
        try:
            yield
        except BaseException:
            self.load_state_dict(before)
            raise

    def sample_async(self) -> Iterator[SampleBatch]:
        """Fragments as they become ready, without end; in one process that is worker order."""
        while True:
            for worker in self.workers:
                yield worker.sample()

    def request(self, limit: int, env_steps: int, most: int | None = None, in_order: bool = False) -> None:
        """Workers in this process act when a fragment is taken; they only hear how far the run is."""
        self.policy.env_steps = env_steps

    def receive(self, in_order: bool = False) -> Receipt:
        """A fragment of the next worker in turn."""
        fragment = self.workers[self._turn].sample()
        self._turn = (self._turn + 1) % len(self.workers)
        return Receipt([fragment], env_steps(fragment), self._gradient_steps, nbytes=fragment.nbytes)

    def fetch(self, receipt: Receipt) -> list[SampleBatch]:
        """The fragments of a receipt, one of each worker."""
        return receipt.fragments

    @property
    def oldest(self) -> int | None:
        """Gradient steps of the oldest weights that still act on a request: none is ever waiting here."""
        return None

    @property
    def requested(self) -> int:
        """Requests that were not received yet: none is ever waiting here."""
        return 0

    def has_ready(self, in_order: bool = False) -> bool:
        """Whether `receive` would not wait: it always has to act first."""
        return False

    def settle(self) -> None:
        """Wait for what was requested and let it go: nothing here."""

    def forget(self) -> None:
        """Let go what was requested: nothing here."""

    def run_episodes(self, count: int) -> list[tuple[float, int]]:
        """`count` whole episodes spread over the workers; (return, length) of each, in worker order."""
        shares = split(count, len(self.workers))
        return [
            episode
            for worker, share in zip(self.workers, shares, strict=True)
            if share
            for episode in worker.run_episodes(share)
        ]

    def get_metrics(self) -> dict[str, list[float]]:
        """Returns and lengths of the episodes that ended since the last call, in worker order."""
        return merged([worker.get_metrics() for worker in self.workers])

    def get_health(self) -> dict[str, float]:
        """Processes and environments that were replaced so far, under their metric names."""
        return {"sys/worker_restarts": 0.0, "sys/env_restarts": float(sum(w.restarts.count for w in self.workers))}

    def foreach_worker(self, fn: Callable[[RolloutWorker], Any]) -> list[Any]:
        """`fn(worker)` of every worker, results in worker order."""
        return [fn(worker) for worker in self.workers]

    def cut(self) -> None:
        """Every environment starts its next fragment with a seeded reset, and turns start with the first worker."""
        self._turn = 0
        self._asked.clear()
        self.foreach_worker(lambda worker: worker.cut())

    def state_dict(self) -> dict[str, Any]:
        """What each worker has to remember, by worker index."""
        return {str(worker.worker_index): worker.state_dict() for worker in self.workers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; workers that `state` does not know start afresh."""
        for worker in self.workers:
            if str(worker.worker_index) in state:
                worker.load_state_dict(state[str(worker.worker_index)])

    def heed(self, stopping: Callable[[], bool]) -> None:
        """Nobody waits for workers in this process."""

    def stop(self) -> None:
        """Close all environments."""
        self.foreach_worker(lambda worker: worker.stop())
        self.workers = []


def make_worker_set(
    env: EnvCreator, policy: Any, *, num_workers: int = 0, worker_indices: Sequence[int], **options: Any
) -> Any:
    """A `WorkerSet`: in this process for `num_workers=0` (Ray is not imported), else in that many Ray actors.

    Args:
        env, policy, num_workers, worker_indices: as there.
        options: keywords of `RolloutWorker` and of `Limits`, and `ray`, those of `start_ray`.

    Raises:
        ConfigError: a limit is out of range, or wants processes where there are none.
    """
    ray_options = options.pop("ray", None) or {}
    limits = limits_of({"num_workers": num_workers, **options})
    for each in fields(limits):
        options.pop(each.name, None)
    if num_workers == 0:
        return WorkerSet(env, policy, worker_indices, **options)
    from lightning_rl.rollouts.ray.worker_set import RayWorkerSet

    return RayWorkerSet(
        env, policy, worker_indices, num_workers=num_workers, ray_options=ray_options, limits=limits, **options
    )
