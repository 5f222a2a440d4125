"""Worker classes as Ray actors, for loops written by hand. They are not supervised: the caller replaces dead ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
import torch

from lightning_rl.envs.registry import register_env, registered_envs
from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.rollouts.ray.session import first_ready, get_results
from lightning_rl.rollouts.worker_results import WorkerResult
from lightning_rl.sample_batch import DEFAULT_POLICY, SampleBatch, concat_samples

__all__ = ["ActorSet", "as_remote"]

NAME = "rollout worker"


class ActorSet:
    """Worker actors that exist already (`RolloutWorker.as_remote`), with the methods of a worker set that plans need.

    Args:
        actors: handles.
    """

    def __init__(self, actors: Sequence[Any]) -> None:
        self.actors = list(actors)
        self._weights: Any = None
        self._env_steps = self._gradient_steps = 0
        self._calls: dict[Any, tuple[int, int]] = {}  # reference of the result → actor, gradient steps of its weights

    def sync_weights(self, policy: Any) -> None:
        """Store `policy`'s weights once; each actor takes them before its next call."""
        self._weights = ray.put({DEFAULT_POLICY: policy.get_weights()})
        self._env_steps, self._gradient_steps = policy.env_steps, policy.gradient_steps

    @property
    def idle_workers(self) -> list[int]:
        """Places of the actors without a submitted call, in order."""
        busy = {index for index, _ in self._calls.values()}
        return [index for index in range(len(self.actors)) if index not in busy]

    def submit(self, worker_index: int, fn: Callable[[Any], Any]) -> None:
        """Call `fn(worker)` in an actor, with the weights of the last `sync_weights`."""
        reference = self._update_weights(self.actors[worker_index]).apply.remote(fn)
        self._calls[reference] = (worker_index, self._gradient_steps)

    def next_result(self) -> WorkerResult | None:
        """The result that is ready first; `None` if no call is in flight."""
        if not self._calls:
            return None
        ready = first_ready(list(self._calls), NAME)
        index, gradient_steps = self._calls.pop(ready)
        return WorkerResult(index, get_worker_results([ready])[0], gradient_steps)

    def sample(self) -> SampleBatch:
        """A sample of every actor, concatenated in their order."""
        references = [self._update_weights(actor).sample.remote() for actor in self.actors]
        return concat_samples(get_worker_results(references))

    def sample_async(self) -> Iterator[SampleBatch]:
        """Samples as they become ready, without end; each actor has one request in flight."""
        running = {self._update_weights(actor).sample.remote(): actor for actor in self.actors}
        while True:
            ready = first_ready(list(running), NAME)
            actor = running.pop(ready)
            yield get_worker_results([ready])[0]
            running[self._update_weights(actor).sample.remote()] = actor

    def _update_weights(self, actor: Any) -> Any:
        """Send an actor the weights of the last `sync_weights`; returns the actor."""
        if self._weights is not None:
            actor.set_weights.remote(self._weights, self._env_steps)
        return actor


def get_worker_results(references: Sequence[Any]) -> list[Any]:
    """Results of actors; waits for them."""
    return get_results(references, f"a {NAME}", "lower the number of environments or of workers")


def as_remote(cls: type[Any], **options: Any) -> Any:
    """The Ray actor class of a worker class.

    Its processes know the models and environments that are registered here when this is called.
    """
    names, envs = ModelCatalog.registered_classes(), registered_envs()

    class RemoteWorker(cls):
        """The worker in its own process."""

        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            torch.set_num_threads(1)  # the cores belong to the processes
            ModelCatalog.register_all(names)
            for name, creator in envs.items():
                register_env(name, creator)
            super().__init__(*arguments, **keywords)

    RemoteWorker.__name__ = RemoteWorker.__qualname__ = cls.__name__
    return ray.remote(**options)(RemoteWorker) if options else ray.remote(RemoteWorker)
