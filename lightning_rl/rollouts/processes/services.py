"""Objects that are asked and answer, here or in processes of their own: who asks need not know which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Answer", "LocalService", "make_services"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a service in this process answered.

    Attributes:
        value: returned by the method.
        ready: whether `result` would not wait.
    """

    value: Any
    ready: bool = True

    def result(self) -> Any:
        """What the method returned; waits for it."""
        return self.value


class LocalService:
    """An object in this process, which does at once what it is asked; `ray_services.RayService` has the same verbs.

    Args:
        cls: its class.
        keywords: of its constructor.
    """

    def __init__(self, cls: type, keywords: Mapping[str, Any]) -> None:
        self.served = cls(**keywords)

    def ask(self, method: str, *arguments: Any) -> Answer:
        """Call a method; whoever asks first is served first."""
        return Answer(getattr(self.served, method)(*arguments))

    def stop(self) -> None:
        """Nothing to end here; safe to call again."""


def make_services(
    cls: type, keywords: Sequence[Mapping[str, Any]], *, remote: bool, remedy: str = "give it less to hold"
) -> list[Any]:
    """One service for each entry of `keywords`.

    Args:
        cls: what they are.
        keywords: of each one's constructor.
        remote: in Ray processes of their own (a session has been started); else in this one, without Ray.
        remedy: what helps where one dies because its memory does not suffice.
    """
    if not remote:
        return [LocalService(cls, each) for each in keywords]
    from lightning_rl.rollouts.ray.services import RayService

    return [RayService(cls, each, remedy) for each in keywords]
