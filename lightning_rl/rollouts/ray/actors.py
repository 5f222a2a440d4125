"""Worker classes as Ray actors, for loops written by hand. Nobody restarts them: who made them looks after them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
import torch

from lightning_rl.envs.registry import register_env, registered_envs
from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.rollouts.asking import Answered
from lightning_rl.rollouts.ray.session import fetched, first_ready
from lightning_rl.rollouts.rollout_worker import DEFAULT_POLICY
from lightning_rl.sample_batch import SampleBatch, concat_samples

__all__ = ["ActorSet", "as_remote"]

NAME = "rollout worker"


class ActorSet:
    """Worker actors that somebody else made (`RolloutWorker.as_remote`), with the verbs that a plan needs.

    Args:
        actors: handles.
    """

    def __init__(self, actors: Sequence[Any]) -> None:
        self.actors = list(actors)
        self._weights: Any = None
        self._env_steps = self._gradient_steps = 0
        self._asked: dict[Any, tuple[int, int]] = {}  # by what will be answered: actor, gradient steps of its weights

    def sync_weights(self, policy: Any) -> None:
        """One object in the store; each actor takes it before what it is asked for next."""
        self._weights = ray.put({DEFAULT_POLICY: policy.get_weights()})
        self._env_steps, self._gradient_steps = policy.env_steps, policy.gradient_steps

    @property
    def idle(self) -> list[int]:
        """The actors who owe no answer, in order."""
        busy = {index for index, _ in self._asked.values()}
        return [index for index in range(len(self.actors)) if index not in busy]

    def ask(self, worker_index: int, fn: Callable[[Any], Any]) -> None:
        """Let an actor do `fn(worker)` with the weights of the last `sync_weights`."""
        answer = self._newest(self.actors[worker_index]).apply.remote(fn)
        self._asked[answer] = (worker_index, self._gradient_steps)

    def answer(self) -> Answered | None:
        """What is ready first; `None`: nothing is owed."""
        if not self._asked:
            return None
        ready = first_ready(list(self._asked), NAME)
        index, gradient_steps = self._asked.pop(ready)
        return Answered(index, got([ready])[0], gradient_steps)

    def sample(self) -> SampleBatch:
        """A sample of every actor, joined in their order."""
        return concat_samples(got([self._newest(actor).sample.remote() for actor in self.actors]))

    def sample_async(self) -> Iterator[SampleBatch]:
        """Samples as they become ready, without end; each actor has one request in flight."""
        running = {self._newest(actor).sample.remote(): actor for actor in self.actors}
        while True:
            ready = first_ready(list(running), NAME)
            actor = running.pop(ready)
            yield got([ready])[0]
            running[self._newest(actor).sample.remote()] = actor

    def _newest(self, actor: Any) -> Any:
        """The actor, who has been sent the weights of the last `sync_weights`."""
        if self._weights is not None:
            actor.set_weights.remote(self._weights, self._env_steps)
        return actor


def got(answers: Sequence[Any]) -> list[Any]:
    """What actors answered, or will answer."""
    return fetched(answers, f"a {NAME}", "lower the number of environments or of workers")


def as_remote(cls: type[Any], **options: Any) -> Any:
    """The Ray actor class of a worker class; what is registered now is registered in its processes, too."""
    names, envs = ModelCatalog.registered_classes(), registered_envs()

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
