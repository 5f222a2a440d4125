"""The interface by which a supervisor sends requests to processes: `rollouts/ray/transport.py`, or a test's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Outcome", "ProcessDiedError", "Transport"]


class ProcessDiedError(RuntimeError):
    """A process ended before it answered."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended.

    Attributes:
        token: that it was submitted with.
        value: what the process returned; of a request whose result stays where it is, only what is told about it.
        error: what it raised, with its own traceback in the message; `ProcessDiedError` where it died over it.
        at: when, on the transport's clock, seconds.
    """

    token: int
    value: Any
    error: BaseException | None
    at: float


class Transport(Protocol):
    """Starts and ends processes, and carries requests to them; each does its requests one after the other."""

    def now(self) -> float:
        """A clock that never goes back, seconds."""
        ...

    def start(self) -> Any:
        """Begin to start a process; whatever is submitted to it waits for it."""
        ...

    def submit(self, process: Any, token: int, method: str, arguments: Sequence[Any], apart: bool) -> Any:
        """Hand a request to a process, without waiting.

        Args:
            process: from `start`.
            token: names the request.
            method: of the process.
            arguments: of the method.
            apart: whether the method's result stays where it is.

        Returns:
            What stands for that result (`apart`), else `None`.
        """
        ...

    def wait(self, timeout: float) -> list[Outcome]:
        """What has ended since the last call, oldest first; waits up to `timeout` seconds for the first.

        The cost must not depend on how many requests are still running.
        """
        ...

    def kill(self, process: Any) -> None:
        """End a process at once, whatever it is doing; its requests need not end any more."""
        ...

    def put(self, value: Any) -> Any:
        """Store something once that many requests take as an argument; returns what stands for it."""
        ...

    def get(self, held: Sequence[Any]) -> list[Any]:
        """Results that stayed where they were; waits until they are here."""
        ...
