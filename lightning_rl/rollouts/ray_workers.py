"""Rollout workers in other processes: the only file that imports Ray.

A process runs one or more logical workers. Weights travel with the request to sample: one object in Ray's store per
version, pulled by each process when it begins, so no update can be lost or overtaken.
"""

from __future__ import annotations

import os
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
from lightning_rl.rollouts.gather import joined, merged, split
from lightning_rl.rollouts.policy_verbs import DEFAULT_POLICY
from lightning_rl.rollouts.registry import register_env, registered_envs
from lightning_rl.rollouts.rollout_worker import RolloutWorker
from lightning_rl.rollouts.weights import pack, unpack
from lightning_rl.sample_batch import SampleBatch, concat_samples

__all__ = ["ActorSet", "RayWorkerSet", "as_remote", "start_ray"]


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


class RolloutProcess:
    """The logical workers of one process, acting with one copy of the policy."""

    def start(
        self,
        env: EnvCreator,
        policy_class: type,
        arguments: Mapping[str, Any],
        indices: Sequence[int],
        options: Mapping[str, Any],
        registered: Mapping[str, Any],
    ) -> None:
        """Build policy and environments; no constructor, because an error there would hide behind "the actor died"."""
        torch.set_num_threads(1)  # the cores belong to the processes
        ModelCatalog.register_all(registered)
        self.policy = policy_class(**arguments).eval()
        self.version = -1
        self.workers = {index: RolloutWorker(env, self.policy, worker_index=index, **options) for index in indices}

    def sample(
        self, indices: Sequence[int], weights: Mapping[str, Any], version: int, env_steps: int
    ) -> list[tuple[int, Any, Any]]:
        """(worker index, fragment as arrays, metrics) of each logical worker asked for."""
        if version != self.version:
            unpack(self.policy, weights)
            self.version, self.policy.env_steps = version, env_steps
        return [(index, self.workers[index].sample().numpy(), self.workers[index].get_metrics()) for index in indices]

    def call(self, fn: Callable[[RolloutWorker], Any]) -> list[tuple[int, Any]]:
        """`fn` of each worker."""
        return [(index, fn(worker)) for index, worker in self.workers.items()]


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
        self._weights: Any = None
        self._env_steps = 0
        self.version = 0
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
        processes, self.processes = self.processes, []
        for process in processes:
            ray.kill(process)
        if self.owns_ray:
            self.owns_ray = False
            ray.shutdown()

    def _request(self, process: Any, indices: Sequence[int]) -> Any:
        return process.sample.remote(indices, self._weights, self.version, self._env_steps)

    def _taken(self, answers: Sequence[Any]) -> list[tuple[int, SampleBatch]]:
        """Keep the metrics; give the fragments as tensors of our own (the store's memory is read-only)."""
        fragments = []
        for index, arrays, metrics in (part for answer in answers for part in answer):
            self._metrics[index].append(metrics)
            fragments.append((index, arrays.map(lambda column: torch.from_numpy(column.copy()))))
        return fragments

    def _get(self, refs: Sequence[Any]) -> list[Any]:
        try:
            return list(ray.get(list(refs)))
        except RayTaskError as error:
            if isinstance(error.cause, EnvError):
                raise EnvError(f"{error.cause}\n{error}") from error
            raise
        except RayActorError as error:
            raise EnvError(
                f"a rollout worker process died: {error}. If it was killed for memory, lower workers.envs_per_worker "
                "or num_workers"
            ) from error


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


def as_remote(cls: type[RolloutWorker], **options: Any) -> Any:
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
