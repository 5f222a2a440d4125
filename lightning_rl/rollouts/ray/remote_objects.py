"""Objects in Ray processes whose methods are called by `submit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lightning_rl.rollouts.ray.actors import as_remote
from lightning_rl.rollouts.ray.session import get_results, is_ready, kill_actors

__all__ = ["RayFuture", "RayObject"]


@dataclass(frozen=True, slots=True)
class RayFuture:
    """The result of a method that a Ray process is doing or has done.

    Unlike `concurrent.futures.Future`, it leaves the result in the object store until `result` is called.

    Attributes:
        reference: to the result in the object store.
        name: the name of the class, for messages.
        remedy: advice in the error message if the memory of the process does not suffice.
    """

    reference: Any
    name: str
    remedy: str

    def done(self) -> bool:
        """Whether `result` would not wait."""
        return is_ready(self.reference)

    def result(self) -> Any:
        """What the method returned; waits for it.

        Raises:
            EnvError: the process died.
        """
        return get_results([self.reference], f"a {self.name}", self.remedy)[0]


class RayObject:
    """An object in its own process, which does the submitted calls in their order.

    Args:
        cls: its class.
        keywords: the keywords of its constructor.
        remedy: advice in the error message if the memory of the process does not suffice.
    """

    def __init__(self, cls: type, keywords: Mapping[str, Any], remedy: str) -> None:
        self.name, self.remedy = cls.__name__, remedy
        self._actors = [as_remote(cls, num_cpus=0).remote(**keywords)]

    def submit(self, method: str, *arguments: Any) -> RayFuture:
        """Call a method; an argument in the object store goes to the process without being get_results here."""
        (actor,) = self._actors
        return RayFuture(getattr(actor, method).remote(*arguments), self.name, self.remedy)

    def stop(self) -> None:
        """End the process; safe to call again."""
        actors, self._actors = self._actors, []
        kill_actors(actors)
