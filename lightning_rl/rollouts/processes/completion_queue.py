"""Requests of one submitter: those in flight, and those that are done and not taken yet."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from lightning_rl.rollouts.processes.supervisor import Request, Supervisor

__all__ = ["CompletionQueue"]


class CompletionQueue:
    """Submits requests to a supervisor, and gives them back when they are done.

    The cost of each method does not depend on how many requests there are.

    Args:
        supervisor: the supervisor of the processes.
        create: a request for a process, by its number; needed for `fill` only.
    """

    def __init__(self, supervisor: Supervisor, create: Callable[[int], Request] | None = None) -> None:
        self.supervisor, self._create = supervisor, create
        self._clear()

    def __len__(self) -> int:
        """Requests that were submitted and not taken yet."""
        return len(self._inflight)

    def submit(self, request: Request) -> None:
        """Hand a request to the supervisor."""
        request.on_done = self._finish
        self._inflight[request] = None
        self.supervisor.submit(request)

    def fill(self, per_process: int, max_inflight: int | None = None) -> None:
        """Submit requests until every process has `per_process` of them.

        Args:
            per_process: ≥ 1; a later call may raise it.
            max_inflight: requests of all processes together; the process whose request was taken longest ago gets the
                next one. `None`: no limit.
        """
        assert self._create is not None
        more = per_process - self._per_process
        self._free.extend(self.supervisor.healthy * more if more > 0 else ())
        self._per_process, self._max_inflight = max(per_process, self._per_process), max_inflight
        while self._free and (max_inflight is None or len(self._inflight) < max_inflight):
            number = self._free.popleft()
            if self.supervisor.processes[number].state != "lost":
                self.submit(self._create(number))

    def next_done(self, in_order: bool = False) -> Request | None:
        """The request that was done first, or (`in_order`) was submitted first; waits for it.

        Requests of processes that have been given up leave the queue; `fill` replaces its own.

        Returns:
            The request, or `None` if there is none in flight.

        Raises:
            BaseException: see `Supervisor.work`.
        """
        self.supervisor.work(lambda: self._is_ready(in_order) or not self._inflight)
        if not self._inflight:
            return None
        request = next(iter(self._inflight if in_order else self._done))
        del self._done[request]
        self._remove(request)
        if self._create is not None:
            self._free.append(request.process_number)
        return request

    def has_done(self, in_order: bool = False) -> bool:
        """Whether `next_done` would give a request without waiting."""
        return bool(self._inflight) and self.supervisor.work(lambda: self._is_ready(in_order), timeout=0.0)

    def drain(self) -> None:
        """Wait until all requests are done, and discard their results.

        Raises:
            BaseException: see `Supervisor.work`.
        """
        self._max_inflight = 0  # no other process replaces one that is given up meanwhile
        self.supervisor.work(lambda: len(self._done) == len(self._inflight))
        self.cancel()

    def cancel(self) -> None:
        """Discard all requests; the processes still do those that they have, before anything submitted later."""
        for request in self._inflight:
            request.cancelled, request.on_done = True, None
        self._clear()

    def record_weights(self, request: Request, gradient_steps: int) -> None:
        """Note that a request is sent now, with weights after that many gradient steps."""
        self._gradient_steps[request] = gradient_steps
        self._gradient_steps.move_to_end(request)

    @property
    def oldest_gradient_steps(self) -> int | None:
        """Gradient steps of the oldest weights among the sent requests; `None` where no request has been sent."""
        for request, gradient_steps in self._gradient_steps.items():
            if request.done or request.sent:
                return gradient_steps
        return None

    def _clear(self) -> None:
        self._inflight: OrderedDict[Request, None] = OrderedDict()  # in the order of submission
        self._done: OrderedDict[Request, None] = OrderedDict()  # of these, those that are done, in that order
        self._gradient_steps: OrderedDict[Request, int] = OrderedDict()  # in the order in which they were sent
        self._free: deque[int] = deque()  # process numbers that `fill` may use, the next one first
        self._per_process = 0  # how often `_free` holds each number when nothing is in flight
        self._max_inflight: int | None = None  # of the last `fill`

    def _is_ready(self, in_order: bool) -> bool:
        return next(iter(self._inflight)) in self._done if in_order and self._inflight else bool(self._done)

    def _finish(self, request: Request) -> None:
        if not request.lost:
            self._done[request] = None
            return
        self._remove(request)
        if self._create is not None:  # else a caller that waits might have nothing in flight any more
            self.fill(self._per_process, self._max_inflight)

    def _remove(self, request: Request) -> None:
        del self._inflight[request]
        self._gradient_steps.pop(request, None)
