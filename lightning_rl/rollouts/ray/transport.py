"""Carries requests to processes that are Ray actors.

Ray calls back when a result is there, so that waiting costs the same however many requests are out; `ray.wait` would
look at all of them each time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from lightning_rl.errors import EnvError
from lightning_rl.rollouts.processes.transport import Outcome, ProcessDiedError
from lightning_rl.rollouts.ray.session import end, fetched, told

__all__ = ["RayTransport"]


class RayTransport:
    """See `Transport`.

    Args:
        cls: of what lives in a process; `perform(method, *arguments)` does what it is asked, and
            `perform_apart(method, *arguments)` gives two results of which the first stays where it is.
        options: of the actors: their resources, and where they shall be.
    """

    def __init__(self, cls: type, options: Mapping[str, Any] | None = None) -> None:
        self._class: Any = ray.remote(**{"num_cpus": 1, **(options or {})})(carried(cls))
        self._ended: SimpleQueue[Outcome] = SimpleQueue()

    def now(self) -> float:
        """Seconds."""
        return time.monotonic()

    def start(self) -> Any:
        """An actor; Ray itself shall not restart it, for a new one would not know what the old one knew."""
        return self._class.options(max_restarts=0).remote()

    def submit(self, process: Any, token: int, method: str, arguments: Sequence[Any], apart: bool) -> Any:
        """Call the actor. What is stored goes as an argument of its own, for Ray looks only there; all else as one."""
        stored = {place: each for place, each in enumerate(arguments) if isinstance(each, ray.ObjectRef)}
        request = (method, [None if place in stored else each for place, each in enumerate(arguments)], [*stored])
        if apart:
            held, answer = process.carry_apart.options(num_returns=2).remote(request, *stored.values())
        else:
            held, answer = None, process.carry.remote(request, *stored.values())
        answer.future().add_done_callback(partial(self._end, token))
        return held

    def wait(self, timeout: float) -> list[Outcome]:
        """What has ended."""
        ended = []
        try:
            if timeout > 0:
                ended.append(self._ended.get(timeout=timeout))
            while True:
                ended.append(self._ended.get_nowait())
        except Empty:
            return ended

    def kill(self, process: Any) -> None:
        """Ray ends the process, if there still is one."""
        end([process])

    def put(self, value: Any) -> Any:
        """Store something once that many requests take as an argument; what stands for it there."""
        return ray.put(value)

    def get(self, held: Sequence[Any]) -> list[Any]:
        """Results that stayed where they were; waits until they are here.

        Raises:
            EnvError: they are lost.
        """
        try:
            return fetched(held, "a rollout worker", "lower workers.envs_per_worker or num_workers")
        except RayError as error:
            raise EnvError(f"a fragment was lost with the machine that held it: {error}; resume the run") from error

    def _end(self, token: int, answer: Future[Any]) -> None:
        """Called by Ray, in a thread of its own."""
        at, error = time.monotonic(), answer.exception()
        if error is None:
            self._ended.put(Outcome(token, answer.result(), None, at))
        else:
            self._ended.put(Outcome(token, None, described(error), at))


def carried(cls: type) -> type:
    """The class, with methods that take requests as `RayTransport` sends them."""

    class Carried(cls):
        """Lives in an actor."""

        def carry(self, request: tuple[str, list[Any], list[int]], *stored: Any) -> Any:
            """Do what is asked."""
            return self.perform(request[0], *put_back(request, stored))

        def carry_apart(self, request: tuple[str, list[Any], list[int]], *stored: Any) -> Any:
            """Do what is asked, with two results."""
            return self.perform_apart(request[0], *put_back(request, stored))

    Carried.__name__ = Carried.__qualname__ = cls.__name__
    return Carried


def put_back(request: tuple[str, list[Any], list[int]], stored: Sequence[Any]) -> list[Any]:
    """The arguments, with what was stored in its places."""
    _, arguments, places = request
    for place, value in zip(places, stored, strict=True):
        arguments[place] = value
    return arguments


def described(error: BaseException) -> BaseException:
    """What happened to a request, in the words of the package."""
    if isinstance(error, RayTaskError):
        return told(error)
    if isinstance(error, RayActorError) and "creation task" in str(error):
        return EnvError(f"could not be started: {error}")  # what it imports is not there, and will not be next time
    if isinstance(error, RayActorError):
        return ProcessDiedError(f"died {brief(str(error))}")
    if isinstance(error, RayError):
        return ProcessDiedError(f"is out of reach: {error}")
    return error


def brief(message: str) -> str:
    """Ray's report of a death without its names for things and its guesses; all of it where it has another form."""
    pid = re.search(r"pid: (\d+)", message)
    known = pid is not None and "unexpectedly exits" in message
    return f"(process {pid[1]}): killed, or out of memory, where nothing else follows" if known and pid else message
