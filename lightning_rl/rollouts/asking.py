"""Asking single workers to do something with the newest weights: the verbs `ask`, `answer`, `idle` of worker sets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lightning_rl.rollouts.processes.limits import Request
from lightning_rl.rollouts.processes.supervisor import Supervisor

__all__ = ["Answered", "AskingHere", "AskingThere"]


@dataclass(frozen=True, slots=True)
class Answered:
    """What a worker answered.

    Attributes:
        worker_index: whose it is.
        value: what the function returned.
        gradient_steps: that the worker's weights had taken.
    """

    worker_index: int
    value: Any
    gradient_steps: int


class AskingHere:
    """For workers in this process: each does what it was asked when its answer is taken, with the weights of then."""

    workers: list[Any]
    _gradient_steps: int
    _asked: deque[tuple[int, Callable[[Any], Any]]]

    @property
    def idle(self) -> list[int]:
        """The workers who owe no answer, in order."""
        busy = {index for index, _ in self._asked}
        return [worker.worker_index for worker in self.workers if worker.worker_index not in busy]

    def ask(self, worker_index: int, fn: Callable[[Any], Any]) -> None:
        """Let a worker do `fn(worker)` with the weights of the last `sync_weights`."""
        self._asked.append((worker_index, fn))

    def answer(self) -> Answered | None:
        """What was asked first; `None`: nothing is owed."""
        if not self._asked:
            return None
        index, fn = self._asked.popleft()
        (worker,) = [worker for worker in self.workers if worker.worker_index == index]
        return Answered(index, fn(worker), self._gradient_steps)


class AskingThere:
    """For workers in supervised processes: they answer in the order in which they are ready."""

    dealt: list[list[int]]
    supervisor: Supervisor
    _metrics: dict[int, list[Any]]
    _gradient_steps: int
    _newest: Callable[[], tuple[Any, ...]]
    _sent: Callable[[int, tuple[Any, ...]], tuple[Any, ...]]

    @property
    def idle(self) -> list[int]:
        """The workers who owe no answer, in order; without those whose process has been given up."""
        healthy = set(self.supervisor.healthy)
        return sorted(index for index in self._idle if self._home[index] in healthy)

    def ask(self, worker_index: int, fn: Callable[[Any], Any]) -> None:
        """Let a worker do `fn(worker)` with the weights of the last `sync_weights`.

        Args:
            worker_index: of a logical worker; its process does what it is asked one after the other.
            fn: travels there; what it returns travels back, so arrays are better than tensors. Where a process dies
                over it, its successor does it, with the newest weights.
        """

        def arguments(request: Request) -> tuple[Any, ...]:
            request.note = (worker_index, self._gradient_steps)
            return worker_index, fn, *self._sent(request.number, self._newest())

        self._idle.discard(worker_index)
        self._owed += 1
        self.supervisor.ask(Request(self._home[worker_index], "do", arguments, timed=True, tell=self._told.append))

    def answer(self) -> Answered | None:
        """What is ready first; `None`: nothing is owed. A process that is given up owes nothing any more.

        Raises:
            EnvError: more has failed than `workers.max_restarts` and its neighbours allow.
        """
        while self._owed:
            self.supervisor.work(lambda: bool(self._told))
            request = self._told.popleft()
            self._owed -= 1
            if not request.lost:
                index, gradient_steps = request.note
                value, metrics = request.value
                self._idle.add(index)
                self._metrics[index].append(metrics)
                return Answered(index, value, gradient_steps)
        return None

    def _forget_asked(self) -> None:
        """Nobody waits for an answer any more."""
        self._told: deque[Request] = deque()
        self._owed = 0  # answers, those included that have been told
        self._home = {index: number for number, indices in enumerate(self.dealt) for index in indices}
        self._idle = set(self._home)
