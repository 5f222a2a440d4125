"""The interface by which a supervisor sends requests to processes: `rollouts/ray/transport.py` is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Outcome", "ProcessDiedError", "Transport"]


class ProcessDiedError(RuntimeError):
    """A process ended before its request was done."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended.

    Attributes:
        token: that it was submitted with.
        value: what the method returned; of a request `in_place`, its second result only.
        error: that the method raised, with the process's traceback in the message; `ProcessDiedError` if the process
            died meanwhile.
        at: when, on the transport's clock, seconds.
    """

    token: int
    value: Any
    error: BaseException | None
    at: float


class Transport(Protocol):
    """Starts and ends processes, and carries requests to them; a process does one request after the other."""

    def now(self) -> float:
        """A clock that never goes back, seconds."""
        ...

    def start(self) -> Any:
        """Begin to start a process; returns its handle, to which requests can be submitted at once."""
        ...

    def submit(self, process: Any, token: int, method: str, arguments: Sequence[Any], in_place: bool) -> Any:
        """Send a request to a process, without waiting.

        Args:
            process: a process that `start` returned.
            token: names the request.
            method: the method of the process.
            arguments: the arguments of the method.
            in_place: whether the method has two results, of which the first stays in the process's store.

        Returns:
            A reference to that first result (`in_place`), else `None`.
        """
        ...

    def wait(self, timeout: float) -> list[Outcome]:
        """The requests that have ended since the last call, oldest first; waits up to `timeout` seconds for the first.

        The cost must not depend on how many requests are still running.
        """
        ...

    def kill(self, process: Any) -> None:
        """End a process at once, whatever it is doing; its requests may have no outcome."""
        ...

    def put(self, value: Any) -> Any:
        """Store an argument of many requests once; returns a reference to it."""
        ...

    def get(self, references: Sequence[Any]) -> list[Any]:
        """Results that stayed in the store of a process; waits until they are here."""
        ...
