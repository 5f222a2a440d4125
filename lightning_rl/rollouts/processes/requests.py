"""Requests to sample that are out: who may be asked next, what has come back, and whose weights are the oldest."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from lightning_rl.rollouts.processes.limits import Request
from lightning_rl.rollouts.processes.supervisor import Supervisor

__all__ = ["Requests"]


class Requests:
    """At most `limit` requests for each process; the cost of each verb does not depend on how many there are.

    Args:
        supervisor: of the processes.
        make: a request for a process, to be handed to the supervisor.
    """

    def __init__(self, supervisor: Supervisor, make: Callable[[int], Request]) -> None:
        self.supervisor, self._make = supervisor, make
        self.forget()

    def __len__(self) -> int:
        """Requests that were not taken yet."""
        return len(self._out)

    def fill(self, limit: int, most: int | None = None) -> None:
        """Let every process have `limit` requests.

        Args:
            limit: ≥ 1; a later call may raise it.
            most: requests of all processes together; who was received from longest ago is asked first.
        """
        self._free.extend(self.supervisor.healthy * (limit - self._limit) if limit > self._limit else ())
        self._limit, self._most = max(limit, self._limit), most
        while self._free and (most is None or len(self._out) < most):
            number = self._free.popleft()
            if self.supervisor.processes[number].state == "lost":
                continue
            request = self._make(number)
            request.tell = self._tell
            self._out[request] = None
            self.supervisor.ask(request)

    def take(self, in_order: bool = False) -> Request:
        """What has come back first, or (`in_order`) what was requested first; waits for it.

        Raises:
            BaseException: as `Supervisor.work`.
        """
        self.supervisor.work(lambda: self._is_ready(in_order))
        request = next(iter(self._out if in_order else self._back))
        del self._back[request]
        self._drop(request)
        self._free.append(request.number)
        return request

    def settle(self) -> None:
        """Wait until all that is out is done, and let it go.

        Raises:
            BaseException: as `Supervisor.work`.
        """
        self._most = 0  # nobody is asked in the place of who is given up meanwhile
        self.supervisor.work(lambda: len(self._back) == len(self._out))
        self.forget()

    def has_ready(self, in_order: bool = False) -> bool:
        """Whether `take` would not wait."""
        return bool(self._out) and self.supervisor.work(lambda: self._is_ready(in_order), timeout=0.0)

    def acts(self, request: Request, gradient_steps: int) -> None:
        """A request is handed over now, with weights that have taken so many gradient steps."""
        self._acting[request] = gradient_steps
        self._acting.move_to_end(request)

    @property
    def oldest(self) -> int | None:
        """Gradient steps of the oldest weights that act on a request, or have acted; `None`: none do."""
        for request, gradient_steps in self._acting.items():
            if request.done or request.handed:
                return gradient_steps
        return None

    def forget(self) -> None:
        """Let go what is out; the processes still do it, before whatever they are asked next."""
        for request in getattr(self, "_out", ()):
            request.wanted, request.tell = False, None
        self._out: OrderedDict[Request, None] = OrderedDict()  # in the order in which they were requested
        self._back: OrderedDict[Request, None] = OrderedDict()  # in the order in which they came back
        self._acting: OrderedDict[Request, int] = OrderedDict()  # in the order in which they were handed over
        self._free: deque[int] = deque()  # processes that may be asked, the next one first
        self._limit = 0  # how often each stands there when nothing is requested
        self._most: int | None = None  # as it was given last

    def _is_ready(self, in_order: bool) -> bool:
        return next(iter(self._out)) in self._back if in_order and self._out else bool(self._back)

    def _tell(self, request: Request) -> None:
        if not request.lost:
            self._back[request] = None
            return
        self._drop(request)
        self.fill(self._limit, self._most)  # others are asked instead: who waits may have nothing else out

    def _drop(self, request: Request) -> None:
        del self._out[request]
        self._acting.pop(request, None)
