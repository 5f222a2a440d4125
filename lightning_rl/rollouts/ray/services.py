"""Services in Ray processes: the verbs of `services.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lightning_rl.rollouts.ray.actors import as_remote
from lightning_rl.rollouts.ray.session import end, fetched, is_ready

__all__ = ["RayAnswer", "RayService"]


@dataclass(frozen=True, slots=True)
class RayAnswer:
    """What a service will answer.

    Attributes:
        reference: to it in the object store.
        name: of the service, for messages.
        remedy: what helps where its memory does not suffice.
    """

    reference: Any
    name: str
    remedy: str

    @property
    def ready(self) -> bool:
        """Whether `result` would not wait."""
        return is_ready(self.reference)

    def result(self) -> Any:
        """What the method returned; waits for it.

        Raises:
            EnvError: the process died.
        """
        return fetched([self.reference], f"a {self.name}", self.remedy)[0]


class RayService:
    """An object in a process of its own, which does what it is asked in the order in which it is asked.

    Args:
        cls: its class.
        keywords: of its constructor.
        remedy: what helps where its memory does not suffice.
    """

    def __init__(self, cls: type, keywords: Mapping[str, Any], remedy: str) -> None:
        self.name, self.remedy = cls.__name__, remedy
        self._actors = [as_remote(cls, num_cpus=0).remote(**keywords)]

    def ask(self, method: str, *arguments: Any) -> RayAnswer:
        """Call a method; an argument that is in the object store goes there without coming here."""
        (actor,) = self._actors
        return RayAnswer(getattr(actor, method).remote(*arguments), self.name, self.remedy)

    def stop(self) -> None:
        """End the process; safe to call again."""
        actors, self._actors = self._actors, []
        end(actors)
