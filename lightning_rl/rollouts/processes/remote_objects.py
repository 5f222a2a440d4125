"""Objects whose methods are called by `submit`, in this process or in one of their own; callers need not know which.

They are not supervised: an object with its own state, such as a replay shard, cannot be replaced when it dies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

__all__ = ["LocalObject", "make_objects"]


class LocalObject:
    """An object in this process, with the interface of `ray.remote_objects.RayObject`.

    Args:
        cls: its class.
        keywords: the keywords of its constructor.
    """

    def __init__(self, cls: type, keywords: Mapping[str, Any]) -> None:
        self.object = cls(**keywords)

    def submit(self, method: str, *arguments: Any) -> Future[Any]:
        """Call a method at once; a future that is done."""
        future: Future[Any] = Future()
        future.set_result(getattr(self.object, method)(*arguments))
        return future

    def stop(self) -> None:
        """Nothing to end here; safe to call again."""


def make_objects(
    cls: type, keywords: Sequence[Mapping[str, Any]], *, remote: bool, remedy: str = "give it less to hold"
) -> list[Any]:
    """One object for each entry of `keywords`.

    Args:
        cls: the class of the objects.
        keywords: the keywords of each one's constructor.
        remote: `True`: each in its own Ray process (a session has been started); `False`: in this process, without Ray.
        remedy: advice in the error message if the memory of a process does not suffice.
    """
    if not remote:
        return [LocalObject(cls, each) for each in keywords]
    from lightning_rl.rollouts.ray.remote_objects import RayObject

    return [RayObject(cls, each, remedy) for each in keywords]
