"""Carries requests to processes that are Ray actors.

Ray calls back when a result is there, so that waiting costs the same however many requests are in flight; `ray.wait`
would check all of them each time.
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
from lightning_rl.rollouts.ray.session import get_results, kill_actors, translate_task_error

__all__ = ["RayTransport"]


class RayTransport:
    """See `Transport`.

    Args:
        cls: the class of the object in a process; `perform(method, *arguments)` calls a method, and
            `perform_in_place(method, *arguments)` gives two results, of which the first stays in the process's store.
        options: the options of the actors: their resources and placement.
    """

    def __init__(self, cls: type, options: Mapping[str, Any] | None = None) -> None:
        self._class: Any = ray.remote(**{"num_cpus": 1, **(options or {})})(actor_class(cls))
        self._ended: SimpleQueue[Outcome] = SimpleQueue()

    def now(self) -> float:
        """Seconds."""
        return time.monotonic()

    def start(self) -> Any:
        """An actor; Ray itself does not restart it, for a new one would lack the state of the old one."""
        return self._class.options(max_restarts=0).remote()

    def submit(self, process: Any, token: int, method: str, arguments: Sequence[Any], in_place: bool) -> Any:
        """Call the actor; references among `arguments` become arguments of the Ray call, as Ray resolves no others."""
        stored = {place: each for place, each in enumerate(arguments) if isinstance(each, ray.ObjectRef)}
        sent = [None if place in stored else each for place, each in enumerate(arguments)]
        perform = "perform_in_place" if in_place else "perform"
        serve = process.serve.options(num_returns=1 + in_place)
        results = serve.remote(perform, method, sent, [*stored], *stored.values())
        reference, value = results if in_place else (None, results)
        value.future().add_done_callback(partial(self._end, token))
        return reference

    def wait(self, timeout: float) -> list[Outcome]:
        """The requests that have ended."""
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
        kill_actors([process])

    def put(self, value: Any) -> Any:
        """Store an argument of many requests once; a reference to it."""
        return ray.put(value)

    def get(self, references: Sequence[Any]) -> list[Any]:
        """Results that stayed in the store of a process; waits until they are here.

        Raises:
            EnvError: they are lost.
        """
        try:
            return get_results(references, "a rollout worker", "lower workers.envs_per_worker or num_workers")
        except RayError as error:
            raise EnvError(f"a fragment was lost with the machine that held it: {error}; resume the run") from error

    def _end(self, token: int, future: Future[Any]) -> None:
        """Take the outcome of a request; Ray calls this in its own thread."""
        at, error = time.monotonic(), future.exception()
        if error is None:
            self._ended.put(Outcome(token, future.result(), None, at))
        else:
            self._ended.put(Outcome(token, None, translate_error(error), at))


def actor_class(cls: type) -> type:
    """A subclass with a method that takes requests in the form in which `RayTransport` sends them."""

    class Actor(cls):
        """The object in an actor."""

        def serve(self, perform: str, method: str, arguments: list[Any], places: list[int], *stored: Any) -> Any:
            """Do a request, with the values from the store in their places among the arguments."""
            for place, value in zip(places, stored, strict=True):
                arguments[place] = value
            return getattr(self, perform)(method, *arguments)

    Actor.__name__ = Actor.__qualname__ = cls.__name__
    return Actor


def translate_error(error: BaseException) -> BaseException:
    """The package's error for an error of Ray's."""
    if isinstance(error, RayTaskError):
        return translate_task_error(error)
    if isinstance(error, RayActorError) and "creation task" in str(error):
        return EnvError(f"could not be started: {error}")  # an import fails there, and would fail again
    if isinstance(error, RayActorError):
        return ProcessDiedError(f"died {shorten(str(error))}")
    if isinstance(error, RayError):
        return ProcessDiedError(f"is out of reach: {error}")
    return error


def shorten(message: str) -> str:
    """Ray's report of a death without its vocabulary and guesses; the whole report if it has another form."""
    pid = re.search(r"pid: (\d+)", message)
    known = pid is not None and "unexpectedly exits" in message
    return f"(process {pid[1]}): killed, or out of memory, where nothing else follows" if known and pid else message
