"""Keeps processes at work: starts and ends them, notices who died, raised or hangs, and has the lost work done again.

It knows nothing of policies, environments or Ray; a `Transport` carries the requests. All that it remembers is here:
who was asked for what, by when it must be done, and how many failures are left.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from lightning_rl.errors import ConfigError, EnvError
from lightning_rl.rollouts.processes.limits import Limits, News, Process, Request
from lightning_rl.rollouts.processes.transport import Outcome, ProcessDiedError, Transport

__all__ = ["Supervisor"]

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5  # between two looks at deadlines and restarts; a look costs time for each process
STOP_PATIENCE_S = 8.0  # when the run shall end, for what is being waited for
TOLD_IN_FULL = 5  # failures whose traceback goes to the log; of later ones, the first line
DEATHS_BY_CHANCE = 3  # after so many over the same request, it is the request's fault: it is begun with other seeds
RESTARTED = (EnvError, MemoryError, ProcessDiedError)  # another error is one of the code: it would come again


class Supervisor:
    """A set of processes that do what they are asked, whatever happens to them on the way.

    A request is done exactly once as far as its asker can see: what a process left undone is asked again of the one
    that takes its place, and an answer that comes after all is not listened to.

    Args:
        transport: carries requests.
        names: of the processes, for messages.
        limits: how much may go wrong.
        first: the arguments of "start", the first thing that a new process is asked.
        hear: takes the news of a process.
        trace: what the process in a place left about how it died, or "".

    Attributes:
        restarts: processes that were started in the place of others which failed.
        replacements: of others which had grown.
        stopping: whether the run shall end soon; then nobody waits for longer than a few seconds.
        broken: what made further work impossible.
    """

    def __init__(
        self,
        transport: Transport,
        names: Sequence[str],
        limits: Limits,
        *,
        first: Callable[[Process], tuple[Any, ...]],
        hear: Callable[[News], None],
        trace: Callable[[int], str] = lambda number: "",
    ) -> None:
        self.transport, self.names, self.limits = transport, list(names), limits
        self._first, self._hear, self._trace = first, hear, trace
        self.processes = [Process(number) for number in range(len(self.names))]
        self.restarts = self.replacements = 0
        self.stopping: Callable[[], bool] = lambda: False
        self._stop_by = float("inf")
        self.broken: BaseException | None = None
        self._running: dict[int, Request] = {}  # by token
        self._token = 0
        self._unfinished = 0  # requests that are in a queue
        self._arrived: deque[Outcome] = deque()
        self._look_at = transport.now()

    def start(self) -> None:
        """Start all processes, and wait until they are up.

        Raises:
            BaseException: as `work`.
        """
        for process in self.processes:
            self._start(process)
        self.work(lambda: all(process.state in ("up", "lost") for process in self.processes))

    def ask(self, request: Request) -> Request:
        """Put a request into its process's queue; it is lost at once where the process has been given up."""
        process = self.processes[request.number]
        if process.state == "lost":
            self._lose(request)
            return request
        process.queue.append(request)
        self._unfinished += 1
        if process.state == "up":
            self._submit(process, request)
        return request

    def work(self, until: Callable[[], bool], timeout: float | None = None) -> bool:
        """Attend to the processes until `until()`.

        Args:
            until: a question that costs nothing; asked after everything that happens.
            timeout: seconds after which to give up; `None`: never, which is safe: every request has a deadline.

        Returns:
            Whether `until()` is true.

        Raises:
            EnvError: too much has failed; the last failure's own message and traceback come first.
            KeyboardInterrupt: the run shall end, and what is waited for does not come.
            BaseException: what a process raised, if it is no failure of an environment.
        """
        if self.broken is not None:
            raise self.broken
        now = self.transport.now()
        end = float("inf") if timeout is None else now + timeout
        while True:
            if now >= self._look_at:
                self._look(now)
            if until():
                return True
            if not self._arrived:
                self._arrived.extend(self.transport.wait(max(0.0, min(self._look_at, end) - now)))
            if self._arrived:
                self._settle(self._arrived.popleft())
            elif now >= end:
                return False
            elif not self._unfinished and all(process.state in ("up", "lost") for process in self.processes):
                raise RuntimeError("nothing was asked of the processes: there is nothing to wait for")
            now = self.transport.now()

    @property
    def healthy(self) -> list[int]:
        """The places that have not been given up."""
        return [process.number for process in self.processes if process.state != "lost"]

    def stop(self) -> None:
        """End all processes; nothing can be asked any more. Safe to call again."""
        self.broken = self.broken or RuntimeError("the processes have been stopped")
        for process in self.processes:
            self._end(process)
            process.state = "lost"

    # -- requests -----------------------------------------------------------------------------------------------------
    def _submit(self, process: Process, request: Request) -> None:
        self._token += 1
        if not process.tokens:
            process.since = self.transport.now()
        process.tokens.append(self._token)
        self._running[self._token] = request
        request.handed = True
        arguments = request.arguments(request)
        request.held = self.transport.submit(process.handle, self._token, request.method, arguments, request.apart)

    def _settle(self, outcome: Outcome) -> None:
        """Take what a process answered; nobody listens to one that has been replaced."""
        request = self._running.pop(outcome.token, None)
        if request is None:
            return
        process = self.processes[request.number]
        if outcome.error is not None:
            request.handed, request.held = False, None
            self._failed(process, outcome.error)
            return
        process.tokens.remove(outcome.token)
        request.value, news = outcome.value
        if request.timed:
            process.took(outcome.at - process.since)
        process.since = outcome.at
        if outcome.token > process.heard:
            process.heard = outcome.token
            self._hear(news)
        if process.state == "starting":
            process.state = "up"
            for waiting in process.queue:
                self._submit(process, waiting)
            return
        process.queue.remove(request)
        process.failures = process.overdue = process.deaths = 0
        process.new_seeds = False
        process.served += 1
        process.served_here += 1
        self._finish(request)
        if self.limits.max_memory_mb is not None and news.memory_mb > self.limits.max_memory_mb:
            self._replace(process, news.memory_mb)

    def _finish(self, request: Request) -> None:
        self._unfinished -= 1
        request.done = True
        if request.tell is not None:
            request.tell(request)

    def _lose(self, request: Request) -> None:
        request.lost = request.done = True
        if request.tell is not None:
            request.tell(request)

    # -- processes ----------------------------------------------------------------------------------------------------
    def _start(self, process: Process) -> None:
        process.handle, process.state, process.served_here = self.transport.start(), "starting", 0
        self._submit(process, Request(process.number, "start", lambda _: self._first(process)))

    def _end(self, process: Process) -> None:
        """End the process, if there is one; what it was asked stays in the queue, if anybody still wants it."""
        for token in process.tokens:
            if (request := self._running.pop(token, None)) is not None:
                request.held, request.handed = None, False
        process.tokens.clear()
        wanted = deque(request for request in process.queue if request.wanted)
        self._unfinished -= len(process.queue) - len(wanted)
        process.queue = wanted
        handle, process.handle, process.state = process.handle, None, "waiting"
        if handle is not None:
            self.transport.kill(handle)

    def _look(self, now: float) -> None:
        """Restart whose time has come; replace who takes too long."""
        self._look_at = now + LOOK_EVERY_S
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
                allowed = process.allowed(self.limits)
                if now - process.since > allowed:
                    why = process.too_slow(self.limits)
                    process.overdue += 1
                    self._failed(process, ProcessDiedError(why))

    def _failed(self, process: Process, error: BaseException) -> None:
        starting = process.state == "starting"
        self._end(process)
        raised = not isinstance(error, ProcessDiedError)
        if raised and not (process.served and isinstance(error, RESTARTED)):
            self._break(error)  # it has never worked, or it is no environment's fault: whoever wrote it wants to see it
        process.failures += 1
        process.deaths += not raised and not starting
        process.new_seeds = raised or process.deaths >= DEATHS_BY_CHANCE
        what = f"{self.names[process.number]} {'failed: ' if raised else ''}{error}{self._trace(process.number)}"
        if self.restarts >= self.limits.max_restarts:
            self._break(EnvError(f"{what}\nworkers.max_restarts={self.limits.max_restarts} are used up"), error)
        if process.failures >= self.limits.max_failures:
            self._give_up(process, what, error)
            return
        self.restarts += 1
        wait = self.limits.backoff(process.failures)
        process.restart_at = self.transport.now() + wait
        self._look_at = min(self._look_at, process.restart_at)
        shown = what if self.restarts <= TOLD_IN_FULL else what.splitlines()[0]
        log.warning("%s\nrestart %d%s", shown, self.restarts, f" in {wait:g} s" if wait else "")

    def _give_up(self, process: Process, what: str, error: BaseException) -> None:
        process.state = "lost"
        queue, process.queue = process.queue, deque()
        self._unfinished -= len(queue)
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
            self._lose(request)

    def _replace(self, process: Process, memory_mb: float) -> None:
        """End a process that does its work but grows; it has just answered, so nothing is lost."""
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
