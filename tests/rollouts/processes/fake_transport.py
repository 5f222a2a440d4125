"""Processes that are objects in this one, on a clock that only moves in `wait`, so that failures cost no time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lightning_rl.errors import EnvError
from lightning_rl.rollouts.processes.transport import Outcome, ProcessDiedError


@dataclass(frozen=True)
class Fate:
    """The outcome of a request: "done", "raises", "dies" (its process, half-way), "dies after" (doing it) or "hangs".

    Attributes:
        kind: which of them.
        seconds: until then.
        late: a process that is killed answers all the same: the answer was on its way.
    """

    kind: str = "done"
    seconds: float = 1.0
    late: bool = False


@dataclass(eq=False)
class FakeProcess:
    """One process: the object in it, and until when it is busy."""

    number: int
    object: Any
    free_at: float = 0.0
    killed: bool = False
    dying: bool = False
    hangs: bool = False
    late: bool = False
    tokens: list[int] = field(default_factory=list)


class FakeTransport:
    """A `Transport`.

    Args:
        cls: of what lives in a process, with `perform` and `perform_in_place`.
        fate: of a request, by process, method and arguments.

    Attributes:
        processes: all that were started, in order.
        seconds: what the clock shows.
        operations: things done for requests, as a measure of cost.
        patience_s: what the clock may show at most; a wait without an end is an error then, and not a hang.
    """

    patience_s = float("inf")

    def __init__(self, cls: Callable[[], Any], fate: Callable[[FakeProcess, str, Sequence[Any]], Fate]) -> None:
        self.cls, self.fate = cls, fate
        self.processes: list[FakeProcess] = []
        self.seconds = 0.0
        self.operations = 0
        self._events: list[tuple[float, int, FakeProcess, Outcome]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self.seconds

    def start(self) -> FakeProcess:
        process = FakeProcess(len(self.processes), self.cls(), free_at=self.seconds)
        self.processes.append(process)
        return process

    def submit(self, process: FakeProcess, token: int, method: str, arguments: Sequence[Any], in_place: bool) -> Any:
        self.operations += 1
        if process.dying:
            self._ends(process, token, ProcessDiedError("died: killed"), max(self.seconds, process.free_at))
            return None
        if process.hangs:
            return None
        fate = self.fate(process, method, arguments)
        process.late |= fate.late
        process.tokens.append(token)
        process.free_at = max(process.free_at, self.seconds) + fate.seconds
        held = None
        if fate.kind == "hangs":
            process.hangs = True
        elif fate.kind == "dies":
            self._dies(process)
        elif fate.kind == "raises":
            self._ends(process, token, EnvError("wheels came off"), process.free_at)
        else:
            held = self._done(process, token, method, arguments, in_place)
            if fate.kind == "dies after":
                self._dies(process)
        return held

    def wait(self, timeout: float) -> list[Outcome]:
        until = self.seconds + timeout
        assert until < self.patience_s, "a call waits for an outcome that does not come"
        if not self._events or self._events[0][0] > until:
            self.seconds = until
            return []
        self.seconds = max(self.seconds, self._events[0][0])
        outcomes = []
        while self._events and self._events[0][0] <= self.seconds:
            *_, process, outcome = heapq.heappop(self._events)
            if process.late or not process.killed:
                outcomes.append(outcome)
        self.operations += len(outcomes)
        return outcomes

    def kill(self, process: FakeProcess) -> None:
        process.killed = True

    def put(self, value: Any) -> Any:
        return value

    def get(self, held: Sequence[Any]) -> list[Any]:
        return list(held)

    def _done(self, process: FakeProcess, token: int, method: str, arguments: Sequence[Any], in_place: bool) -> Any:
        held = None
        try:
            if in_place:
                held, value = process.object.perform_in_place(method, *arguments)
            else:
                value = process.object.perform(method, *arguments)
        except Exception as error:
            self._ends(process, token, error, process.free_at)
        else:
            self._ends(process, token, value, process.free_at)
        return held

    def _dies(self, process: FakeProcess) -> None:
        for token in process.tokens:
            self._ends(process, token, ProcessDiedError("died: killed"), process.free_at)
        process.dying = True

    def _ends(self, process: FakeProcess, token: int, how: Any, at: float) -> None:
        error = how if isinstance(how, Exception) else None
        outcome = Outcome(token, None if error else how, error, at)
        heapq.heappush(self._events, (at, next(self._order), process, outcome))
