"""Keeps processes at work: starts and ends them, notices deaths, errors and hangs, and repeats the lost requests.

The supervisor knows nothing of policies, environments or Ray; a `Transport` carries the requests. All that it remembers
is here: which process has which requests, by when they must be done, and how many failures are left.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lightning_rl.errors import ConfigError, EnvApiError, EnvError
from lightning_rl.rollouts.processes.limits import Limits
from lightning_rl.rollouts.processes.transport import Outcome, ProcessDiedError, Transport

__all__ = ["ProcessReport", "ProcessSlot", "Request", "Supervisor"]

log = logging.getLogger(__name__)

CHECK_EVERY_S = 0.5  # between two checks of deadlines and restarts; a check costs time for each process
STOP_PATIENCE_S = 8.0  # seconds that `work` still waits once the run is to end
LOGGED_IN_FULL = 5  # failures whose traceback goes to the log; of later ones, the first line
DEATHS_BY_CHANCE = 3  # after that many over the same request, the request is to blame: it is repeated with other seeds
RESTARTED = (EnvError, MemoryError, ProcessDiedError)  # another error is one of the code: it would come again
SHORTEST_DEADLINE_S = 60.0  # a machine may be busy with other things for that long
PATIENCE = 20  # times what a request usually takes
SMOOTHING = 0.2  # weight of the newest duration in what is usual
QUIET_S, QUIET_RATIO = 20.0, 5.0  # a request is slow beyond both: seconds, and times what it usually takes
CALL_PATIENCE = 10  # times `start_timeout_s`, for functions of which nothing is known


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """What a process reports about itself with every result.

    Attributes:
        positions: what its successor has to know, by worker index.
        env_restarts: replacements of failed environments since the last report.
        memory_mb: resident memory of the process, MiB.
    """

    positions: dict[int, dict[str, int]]
    env_restarts: int
    memory_mb: float


@dataclass(slots=True, eq=False)
class Request:
    """A method call that a process is to do; if the process dies, its successor does it.

    Attributes:
        process_number: which process.
        method: the method of the object in the process.
        arguments: makes the method's arguments when the request is sent, so that they are up to date.
        in_place: whether the result stays in the process's store, and only a summary of it comes here.
        timed: whether its duration says how long the next such request should take.
        on_done: called with the request when it is done or lost.
        sent: whether a process that still lives has it.
        done: whether it has ended, with `value` or lost.
        lost: whether its process has been given up.
        cancelled: whether a successor need not repeat it.
        value: what the method returned.
        result_reference: stands for a result that stayed in the process's store.
        context: what the submitter wants to find again with the result.
    """

    process_number: int
    method: str
    arguments: Callable[[Request], tuple[Any, ...]]
    in_place: bool = False
    timed: bool = False
    on_done: Callable[[Request], None] | None = None
    sent: bool = False
    done: bool = False
    lost: bool = False
    cancelled: bool = False
    value: Any = None
    result_reference: Any = None
    context: Any = None


@dataclass(slots=True, eq=False)
class ProcessSlot:
    """One place in the set, and the process that fills it at present.

    Attributes:
        number: the number of the place.
        handle: the transport's handle of the process; `None` while there is no process.
        state: "up"; "starting": it makes its environments; "waiting": for its restart; "lost": given up.
        queue: requests, in order; the process works on the first.
        tokens: the tokens of the requests in the queue that were sent, in order.
        since: when the process began the first request, seconds.
        restart_at: when to restart, while waiting.
        usual_seconds: duration of a timed request, smoothed; `None`: not known yet.
        failures: in a row, without a finished request in between.
        timeouts: those of them where a request took too long.
        told_since: `since` of the request that was last called slow.
        deaths: those of them where the process died over a request.
        newest_token: the newest token of the request with the newest report.
        served: requests done so far, also by its predecessors.
        served_here: those of them that its present process did.
        new_seeds: whether the failed request must be begun with other seeds.
    """

    number: int
    handle: Any = None
    state: str = "waiting"
    queue: deque[Request] = field(default_factory=deque)
    tokens: deque[int] = field(default_factory=deque)
    since: float = 0.0
    told_since: float = -1.0
    restart_at: float = 0.0
    usual_seconds: float | None = None
    failures: int = 0
    timeouts: int = 0
    deaths: int = 0
    newest_token: int = -1
    served: int = 0
    served_here: int = 0
    new_seeds: bool = False

    def deadline(self, limits: Limits) -> tuple[float, str]:
        """Seconds that the first request of the queue may take, twice as many for each repetition; and which limit."""
        longer = 2.0 ** min(self.timeouts, 32)
        of_start = f"workers.start_timeout_s={limits.start_timeout_s:g}: raise it where this is usual"
        if self.state != "starting":
            if not self.queue[0].timed:
                return CALL_PATIENCE * limits.start_timeout_s, of_start
            if (seconds := limits.sample_timeout_s) is not None:
                return seconds, f"workers.sample_timeout_s={seconds:g}: raise it, or set it to null"
            if (usual := self.usual_seconds) is not None:
                why = f"the usual time is {usual:.3g} s; workers.sample_timeout_s sets another limit"
                return max(SHORTEST_DEADLINE_S, PATIENCE * usual) * longer, why
        return limits.start_timeout_s * longer, of_start

    def is_slow(self, seconds: float) -> bool:
        """Whether its first request has taken so long that a user would wonder what the run waits for."""
        if self.state != "starting" and not self.queue[0].timed:
            return False  # nothing is known of how long such a call takes
        return seconds > max(QUIET_S, QUIET_RATIO * (self.usual_seconds or 0.0))

    def record_time(self, seconds: float) -> None:
        """Take the duration of a timed request into the usual one."""
        usual = self.usual_seconds
        self.usual_seconds = seconds if usual is None else usual + SMOOTHING * (seconds - usual)


class Supervisor:
    """A set of processes that serve requests, and replacements for those that fail.

    The submitter of a request sees it done exactly once: what a dead process left undone its successor does, and a
    result that a replaced process sends late is dropped.

    Args:
        transport: carries requests.
        names: the names of the processes, for messages.
        limits: how often processes may fail, and how long they may take.
        start_arguments: gives the arguments of "start", the first request of a new process.
        on_report: takes the report of a process.
        crash_trace: what the process in a place left about how it died, or "".

    Attributes:
        restarts: processes that were started in the place of failed ones.
        replacements: processes that were started in the place of ones that used too much memory.
        stopping: says whether the run is to end; then `work` waits for some seconds at most.
        broken: the error that made further work impossible.
    """

    def __init__(
        self,
        transport: Transport,
        names: Sequence[str],
        limits: Limits,
        *,
        start_arguments: Callable[[ProcessSlot], tuple[Any, ...]],
        on_report: Callable[[ProcessReport], None],
        crash_trace: Callable[[int], str] = lambda number: "",
    ) -> None:
        self.transport, self.names, self.limits = transport, list(names), limits
        self._start_arguments, self._on_report, self._crash_trace = start_arguments, on_report, crash_trace
        self.processes = [ProcessSlot(number) for number in range(len(self.names))]
        self.restarts = self.replacements = 0
        self.stopping: Callable[[], bool] = lambda: False
        self._stop_by = float("inf")
        self.broken: BaseException | None = None
        self._running: dict[int, Request] = {}  # by token
        self._token = 0
        self._unfinished = 0  # requests that are in a queue
        self._arrived: deque[Outcome] = deque()
        self._check_at = transport.now()

    def start(self) -> None:
        """Start all processes, and wait until they are up.

        Raises:
            BaseException: see `work`.
        """
        for process in self.processes:
            self._start(process)
        self.work(lambda: all(process.state in ("up", "lost") for process in self.processes))

    def submit(self, request: Request) -> Request:
        """Put a request into its process's queue; it is lost at once if the process has been given up."""
        process = self.processes[request.process_number]
        self._unfinished += 1
        if process.state == "lost":
            self._finish(request, lost=True)
            return request
        process.queue.append(request)
        if process.state == "up":
            self._send(process, request)
        return request

    def work(self, until: Callable[[], bool], timeout: float | None = None) -> bool:
        """Take results, and restart processes, until `until()`.

        Args:
            until: cheap; evaluated after every event.
            timeout: seconds after which to give up; `None`: never, which is safe: every request has a deadline.

        Returns:
            Whether `until()` is true.

        Raises:
            EnvError: too much has failed; the last failure's own message and traceback come first.
            KeyboardInterrupt: the run is to end, and `until()` does not become true.
            BaseException: what a process raised, if it is not a failure of an environment.
        """
        if self.broken is not None:
            raise self.broken
        now = self.transport.now()
        end = float("inf") if timeout is None else now + timeout
        while True:
            if now >= self._check_at:
                self._check(now)
            if until():
                return True
            if not self._arrived:
                self._arrived.extend(self.transport.wait(max(0.0, min(self._check_at, end) - now)))
            if self._arrived:
                self._settle(self._arrived.popleft())
            elif now >= end:
                return False
            elif not self._unfinished and all(process.state in ("up", "lost") for process in self.processes):
                raise RuntimeError("no process has a request: there is nothing to wait for")
            now = self.transport.now()

    @property
    def healthy(self) -> list[int]:
        """The places that have not been given up."""
        return [process.number for process in self.processes if process.state != "lost"]

    def stop(self) -> None:
        """End all processes; no request can be submitted any more. Safe to call again."""
        self.broken = self.broken or RuntimeError("the processes have been stopped")
        for process in self.processes:
            self._end(process)
            process.state = "lost"

    # -- requests -----------------------------------------------------------------------------------------------------
    def _send(self, process: ProcessSlot, request: Request) -> None:
        self._token += 1
        if not process.tokens:
            process.since = self.transport.now()
        process.tokens.append(self._token)
        self._running[self._token] = request
        request.sent = True
        arguments = request.arguments(request)
        request.result_reference = self.transport.submit(
            process.handle, self._token, request.method, arguments, request.in_place
        )

    def _settle(self, outcome: Outcome) -> None:
        """Take the outcome of a request, unless its process has been replaced."""
        request = self._running.pop(outcome.token, None)
        if request is None:
            return
        process = self.processes[request.process_number]
        if outcome.error is not None:
            request.sent, request.result_reference = False, None
            self._recover(process, outcome.error)
            return
        process.tokens.remove(outcome.token)
        request.value, report = outcome.value
        if request.timed:
            process.record_time(outcome.at - process.since)
        process.since = outcome.at
        if outcome.token > process.newest_token:
            process.newest_token = outcome.token
            self._on_report(report)
        if process.state == "starting":
            process.state = "up"
            for waiting in process.queue:
                self._send(process, waiting)
            return
        process.queue.remove(request)
        process.failures = process.timeouts = process.deaths = 0
        process.new_seeds = False
        process.served += 1
        process.served_here += 1
        self._finish(request)
        if self.limits.max_memory_mb is not None and report.memory_mb > self.limits.max_memory_mb:
            self._replace(process, report.memory_mb)

    def _finish(self, request: Request, lost: bool = False) -> None:
        self._unfinished -= 1
        request.done, request.lost = True, lost
        if request.on_done is not None:
            request.on_done(request)

    # -- processes ----------------------------------------------------------------------------------------------------
    def _start(self, process: ProcessSlot) -> None:
        process.handle, process.state, process.served_here = self.transport.start(), "starting", 0
        self._send(process, Request(process.number, "start", lambda _: self._start_arguments(process)))

    def _end(self, process: ProcessSlot) -> None:
        """End the process, if there is one; its requests stay in the queue, except for cancelled ones."""
        for token in process.tokens:
            if (request := self._running.pop(token, None)) is not None:
                request.result_reference, request.sent = None, False
        process.tokens.clear()
        left = deque(request for request in process.queue if not request.cancelled)
        self._unfinished -= len(process.queue) - len(left)
        process.queue = left
        handle, process.handle, process.state = process.handle, None, "waiting"
        if handle is not None:
            self.transport.kill(handle)

    def _check(self, now: float) -> None:
        """Start the processes whose time has come; replace those that take too long."""
        self._check_at = now + CHECK_EVERY_S
        if self.stopping():
            self._stop_by = min(self._stop_by, now + STOP_PATIENCE_S)
            if now >= self._stop_by:
                raise KeyboardInterrupt(
                    f"rollout processes have not answered for {STOP_PATIENCE_S:g} s, and the run ends"
                )
        self._arrived.extend(self.transport.wait(0.0))
        answered = {outcome.token for outcome in self._arrived}
        for process in self.processes:
            if process.state == "waiting":
                if now >= process.restart_at:
                    self._start(process)
            elif process.tokens and process.tokens[0] not in answered:
                taken, (allowed, why) = now - process.since, process.deadline(self.limits)
                doing = "to start" if process.state == "starting" else f"for {process.queue[0].method}"
                if taken > allowed:
                    process.timeouts += 1
                    message = f"took more than {allowed:g} s {doing}, and was ended ({why})"
                    self._recover(process, ProcessDiedError(message))
                elif process.is_slow(taken) and process.told_since != process.since:
                    process.told_since = process.since
                    name = self.names[process.number]
                    log.warning("%s has taken %.0f s %s; it is ended after %g s", name, taken, doing, allowed)

    def _recover(self, process: ProcessSlot, error: BaseException) -> None:
        starting = process.state == "starting"
        self._end(process)
        raised = not isinstance(error, ProcessDiedError)
        comes_again = isinstance(error, EnvApiError) or not isinstance(error, RESTARTED)
        if raised and (comes_again or not process.served):
            self._break(error)  # the process has never worked, or the error is one of the code
        process.failures += 1
        process.deaths += not raised and not starting
        process.new_seeds = raised or process.deaths >= DEATHS_BY_CHANCE
        what = f"{self.names[process.number]} {'failed: ' if raised else ''}{error}{self._crash_trace(process.number)}"
        if self.restarts >= self.limits.max_restarts:
            self._break(EnvError(f"{what}\nworkers.max_restarts={self.limits.max_restarts} are used up"), error)
        if process.failures >= self.limits.max_failures:
            self._give_up(process, what, error)
            return
        self.restarts += 1
        wait = self.limits.backoff(process.failures)
        process.restart_at = self.transport.now() + wait
        self._check_at = min(self._check_at, process.restart_at)
        shown = what if self.restarts <= LOGGED_IN_FULL else what.splitlines()[0]
        log.warning("%s\nrestart %d%s", shown, self.restarts, f" in {wait:g} s" if wait else "")

    def _give_up(self, process: ProcessSlot, what: str, error: BaseException) -> None:
        process.state = "lost"
        queue, process.queue = process.queue, deque()
        what = f"{what}\ngiven up after {process.failures} failures in a row (workers.max_failures)"
        least, left = self.limits.least_healthy(len(self.processes)), len(self.healthy)
        if left < least:
            self._break(
                EnvError(
                    f"{what}; {left} of {len(self.processes)} processes are left, and workers.min_healthy="
                    f"{self.limits.min_healthy} wants {least}"
                ),
                error,
            )
        log.warning("%s; %d of %d processes are left", what, left, len(self.processes))
        for request in queue:
            self._finish(request, lost=True)

    def _replace(self, process: ProcessSlot, memory_mb: float) -> None:
        """End a process that uses too much memory; it has just answered, so nothing is lost."""
        limit, name = self.limits.max_memory_mb, self.names[process.number]
        if process.served_here < 2:
            self._break(
                ConfigError(
                    f"workers.max_memory_mb={limit}: {name} occupies {memory_mb:.0f} MiB after one request; raise it, "
                    "or lower workers.envs_per_worker"
                )
            )
        log.warning("%s is replaced: it occupies %.0f MiB, workers.max_memory_mb=%s", name, memory_mb, limit)
        self._end(process)
        self.replacements += 1
        self._start(process)

    def _break(self, error: BaseException, cause: BaseException | None = None) -> None:
        self.broken = error
        raise error from cause
