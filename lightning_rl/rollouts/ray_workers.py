"""Rollout workers in other processes: the only file that imports Ray.

A process runs one or more logical workers. Weights travel with the request to sample: one object in Ray's store per
version, pulled by each process when it begins, so no update can be lost or overtaken.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

# Before the import: Ray reads these once. No usage report, no uv hook (it would start every worker through uv again),
# loopback only.
for _name, _value in {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}.items():
    os.environ.setdefault(_name, _value)

import ray
import torch
from ray.exceptions import RayActorError, RayTaskError

from lightning_rl.errors import EnvError
from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.rollouts.envs import EnvCreator
from lightning_rl.rollouts.gather import Receipt, joined, merged, owned, split
from lightning_rl.rollouts.policy_verbs import DEFAULT_POLICY
from lightning_rl.rollouts.registry import register_env, registered_envs
from lightning_rl.rollouts.rollout_process import RolloutProcess
from lightning_rl.rollouts.rollout_worker import RolloutWorker
from lightning_rl.rollouts.weights import pack
from lightning_rl.sample_batch import SampleBatch, concat_samples

__all__ = ["ActorSet", "RayWorkerSet", "as_remote", "end", "fetched", "is_ready", "start_ray"]


def start_ray(num_workers: int, address: str = "local", **options: Any) -> bool:
    """Start a Ray session private to this run, unless this process has one or `address` names a cluster.

    Args:
        num_workers: processes that will be started.
        address: "local" for a private session, "auto" or host:port to join a cluster.
        options: more keywords of `ray.init`.

    Returns:
        Whether this call started it, so that the caller shuts it down again.
    """
    if ray.is_initialized():
        return False
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error", "configure_logging": True}
    if address == "local":
        quiet["num_cpus"] = max(os.cpu_count() or 1, num_workers + 1)  # never wait for a core that a worker holds
        quiet["object_store_memory"] = 512 * 2**20
    ray.init(address=address, **{**quiet, **options})
    return True


class RayWorkerSet:
    """The verbs of `WorkerSet`, with the workers in `num_workers` Ray actors.

    Args:
        env: how to make the environments.
        policy: whose class and arguments the processes build, and whose weights they get.
        worker_indices: the logical workers, dealt to the processes in turn.
        num_workers: processes.
        ray_options: keywords of `start_ray`.
        worker_options: keywords of `RolloutWorker`.

    Raises:
        EnvError: an environment cannot be made in a worker; the worker's own traceback is in the message.
    """

    def __init__(
        self,
        env: EnvCreator,
        policy: Any,
        worker_indices: Sequence[int],
        *,
        num_workers: int,
        ray_options: Mapping[str, Any] | None = None,
        **worker_options: Any,
    ) -> None:
        self.num_workers = num_workers
        self.owns_ray = start_ray(num_workers, **(ray_options or {}))
        self.dealt = [list(worker_indices)[process::num_workers] for process in range(num_workers)]
        actor: Any = ray.remote(num_cpus=1)(RolloutProcess)
        made = (type(policy), policy.constructor_arguments())
        self.processes: list[Any] = [actor.remote() for _ in self.dealt]
        self._metrics: dict[int, list[Any]] = {index: [] for index in worker_indices}
        self._running: dict[Any, tuple[Any, int, int]] = {}  # by what they will tell: fragments, process, weights
        self._weights: Any = None
        self.version = self._env_steps = self._gradient_steps = 0
        try:
            pairs = zip(self.processes, self.dealt, strict=True)
            names = ModelCatalog.registered()
            self._get([process.start.remote(env, *made, indices, worker_options, names) for process, indices in pairs])
        except BaseException:
            self.stop()
            raise

    def local_worker(self) -> Any:
        """There is none: the learner does not sample."""
        return None

    def remote_workers(self) -> list[Any]:
        """The Ray actors."""
        return list(self.processes)

    def sync_weights(self, policy: Any) -> None:
        """Put `policy`'s weights into the object store; they travel with the next request to sample."""
        self.version += 1
        self._weights, self._env_steps = ray.put(pack(policy)), policy.env_steps
        self._gradient_steps = policy.gradient_steps

    def sample(self) -> SampleBatch:
        """One fragment of every worker, side by side in worker order, whoever finishes first."""
        requests = [
            self._request(process, indices) for process, indices in zip(self.processes, self.dealt, strict=True)
        ]
        return joined([fragment for _, fragment in sorted(self._taken(self._get(requests)), key=lambda item: item[0])])

    def sample_async(self) -> Iterator[SampleBatch]:
        """Fragments as they become ready, without end; each process has one request in flight."""
        running = {
            self._request(p, indices): number
            for number, (p, indices) in enumerate(zip(self.processes, self.dealt, strict=True))
        }
        while True:
            (ready, *_), _ = ray.wait(list(running), num_returns=1, fetch_local=False)
            number = running.pop(ready)
            yield joined([fragment for _, fragment in self._taken(self._get([ready]))])
            running[self._request(self.processes[number], self.dealt[number])] = number

    def request(self, limit: int, env_steps: int) -> None:
        """Let every process have `limit` requests to sample, new ones with the weights of the last `sync_weights`."""
        waiting = Counter(number for _, number, _ in self._running.values())
        for number, (process, indices) in enumerate(zip(self.processes, self.dealt, strict=True)):
            sample = process.sample_apart.options(num_returns=2)
            for _ in range(limit - waiting[number]):
                fragments, told = sample.remote(indices, self._weights, self.version, env_steps)
                self._running[told] = (fragments, number, self._gradient_steps)

    def receive(self) -> Receipt:
        """What was requested and is ready first; the fragments themselves stay in the object store."""
        (ready, *_), _ = ray.wait(list(self._running), num_returns=1, fetch_local=False)
        fragments, _, gradient_steps = self._running.pop(ready)
        (told,) = self._get([ready])
        for index, _, metrics in told:
            self._metrics[index].append(metrics)
        return Receipt(fragments, sum(steps for _, steps, _ in told), gradient_steps)

    def fetch(self, receipt: Receipt) -> list[SampleBatch]:
        """The fragments of a receipt, one of each worker."""
        return [owned(arrays) for arrays in self._get([receipt.fragments])[0]]

    @property
    def oldest(self) -> int | None:
        """Gradient steps of the oldest weights that still act on a request; `None`: nothing is requested."""
        return min((gradient_steps for *_, gradient_steps in self._running.values()), default=None)

    def run_episodes(self, count: int) -> list[tuple[float, int]]:
        """`count` whole episodes spread over the workers; (return, length) of each, in worker order."""
        indices = sorted(index for dealt in self.dealt for index in dealt)
        shares = dict(zip(indices, split(count, len(indices)), strict=True))
        played = self.foreach_worker(
            lambda worker: worker.run_episodes(shares[worker.worker_index]) if shares[worker.worker_index] else []
        )
        return [episode for episodes in played for episode in episodes]

    def get_metrics(self) -> dict[str, list[float]]:
        """Returns and lengths of the episodes that ended since the last call, in worker order."""
        held = [part for index in sorted(self._metrics) for part in self._metrics[index]]
        self._metrics = {index: [] for index in self._metrics}
        return merged(held) if held else {"episode_returns": [], "episode_lengths": []}

    def foreach_worker(self, fn: Callable[[RolloutWorker], Any]) -> list[Any]:
        """`fn(worker)` of every worker, results in worker order."""
        answers = self._get([process.call.remote(fn) for process in self.processes])
        return [answer for _, answer in sorted((pair for part in answers for pair in part), key=lambda pair: pair[0])]

    def cut(self) -> None:
        """Every environment starts its next fragment with a seeded reset."""
        self.foreach_worker(lambda worker: worker.cut())

    def state_dict(self) -> dict[str, Any]:
        """What each worker has to remember, by worker index."""
        return dict(self.foreach_worker(lambda worker: (str(worker.worker_index), worker.state_dict())))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; workers that `state` does not know start afresh."""
        self.foreach_worker(
            lambda worker: (
                worker.load_state_dict(state[str(worker.worker_index)]) if str(worker.worker_index) in state else None
            )
        )

    def stop(self) -> None:
        """End the processes, and the Ray session if this set started it; safe to call again."""
        processes, self.processes, self._running = self.processes, [], {}
        end(processes)
        if self.owns_ray:
            self.owns_ray = False
            ray.shutdown()

    def _request(self, process: Any, indices: Sequence[int]) -> Any:
        return process.sample.remote(indices, self._weights, self.version, self._env_steps)

    def _taken(self, answers: Sequence[Any]) -> list[tuple[int, SampleBatch]]:
        """Keep the metrics; give the fragments."""
        parts = [part for answer in answers for part in answer]
        for index, _, metrics in parts:
            self._metrics[index].append(metrics)
        return [(index, owned(arrays)) for index, arrays, _ in parts]

    def _get(self, refs: Sequence[Any]) -> list[Any]:
        return fetched(refs, "a rollout worker", "lower workers.envs_per_worker or num_workers")


def fetched(references: Sequence[Any], name: str, remedy: str) -> list[Any]:
    """What the object store holds, or will hold, under these references; waits for it.

    Args:
        references: of the store.
        name, remedy: of the process that makes it, and what may help if it died, for the message.

    Raises:
        EnvError: an environment failed there (with the worker's own traceback), or the process died.
    """
    try:
        return list(ray.get(list(references)))
    except RayTaskError as error:
        if isinstance(error.cause, EnvError):
            raise EnvError(f"{error.cause}\n{error}") from error
        raise
    except RayActorError as error:
        raise EnvError(f"the process of {name} died: {error}. If it was killed for memory, {remedy}") from error


def is_ready(reference: Any) -> bool:
    """Whether `fetched` would not wait for it."""
    return bool(ray.wait([reference], timeout=0, fetch_local=False)[0])


def end(actors: Sequence[Any]) -> None:
    """End the processes of actors."""
    for actor in actors:
        ray.kill(actor)


class ActorSet:
    """Worker actors that somebody else made (`RolloutWorker.as_remote`), with the verbs that a plan needs.

    Args:
        actors: handles.
    """

    def __init__(self, actors: Sequence[Any]) -> None:
        self.actors = list(actors)

    def sync_weights(self, policy: Any) -> None:
        """One object in the store; each actor takes it before what it is asked for next."""
        weights = ray.put({DEFAULT_POLICY: policy.get_weights()})
        for actor in self.actors:
            actor.set_weights.remote(weights)

    def sample(self) -> SampleBatch:
        """A sample of every actor, joined in their order."""
        return concat_samples(ray.get([actor.sample.remote() for actor in self.actors]))

    def sample_async(self) -> Iterator[SampleBatch]:
        """Samples as they become ready, without end; each actor has one request in flight."""
        running = {actor.sample.remote(): actor for actor in self.actors}
        while True:
            (ready, *_), _ = ray.wait(list(running), num_returns=1, fetch_local=False)
            actor = running.pop(ready)
            yield ray.get(ready)
            running[actor.sample.remote()] = actor


def as_remote(cls: type[Any], **options: Any) -> Any:
    """The Ray actor class of a worker class; what is registered now is registered in its processes, too."""
    names, envs = ModelCatalog.registered(), registered_envs()

    class RemoteWorker(cls):
        """The worker in a process of its own."""

        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            torch.set_num_threads(1)  # the cores belong to the processes
            ModelCatalog.register_all(names)
            for name, creator in envs.items():
                register_env(name, creator)
            super().__init__(*arguments, **keywords)

    RemoteWorker.__name__ = RemoteWorker.__qualname__ = cls.__name__
    return ray.remote(**options)(RemoteWorker) if options else ray.remote(RemoteWorker)
