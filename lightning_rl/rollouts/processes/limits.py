"""What is known about supervised processes: how much they may fail and wait, what they were asked, how they do."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from lightning_rl.errors import ConfigError
from lightning_rl.ranges import Count, NonNegative, Portion, Positive, Whole
from lightning_rl.signatures import check_fields

__all__ = ["Limits", "News", "Process", "Request", "limits_of"]

LONGEST_BACKOFF_S = 60.0
SHORTEST_DEADLINE_S = 60.0  # a machine may be busy with other things for that long
PATIENCE = 20  # times what a request usually takes
SMOOTHING = 0.2  # weight of the newest duration in what is usual
CALL_PATIENCE = 10  # times `start_timeout_s`, for functions of which nothing is known


@check_fields("workers")
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How often processes may fail, and how long they may take.

    Args:
        max_restarts: of processes in the whole run, ≥ 0.
        max_failures: of one process in a row, without anything done in between, ≥ 1; then it is given up.
        restart_backoff_s: wait before the second restart in a row; it doubles each time, up to a minute. The first
            restart is at once.
        min_healthy: share of the processes that must not be given up, in (0, 1]; with fewer the run stops.
        start_timeout_s: for a process to start and make its environments, and to sample for the first time.
        sample_timeout_s: for a request to sample; `None`: 20 times what the process usually takes, a minute at least.
        reset_timeout_s, step_timeout_s: for one reset or step of a process's environments; `None`: only those above.
        max_memory_mb: resident memory, MiB, above which a process is replaced after it has answered; `None`: any.

    Raises:
        ConfigError: a number is out of range.
    """

    max_restarts: Whole = 100
    max_failures: Count = 5
    restart_backoff_s: NonNegative = 1.0
    min_healthy: Portion = 1.0
    start_timeout_s: Positive = 300.0
    sample_timeout_s: Positive | None = None
    reset_timeout_s: Positive | None = None
    step_timeout_s: Positive | None = None
    max_memory_mb: Positive | None = None

    def backoff(self, in_a_row: int) -> float:
        """Seconds to wait before a restart after so many failures in a row, ≥ 1."""
        if in_a_row == 1:
            return 0.0
        return min(LONGEST_BACKOFF_S, self.restart_backoff_s * 2.0 ** min(in_a_row - 2, 32))

    def least_healthy(self, processes: int) -> int:
        """How many of so many processes must not be given up."""
        return math.ceil(self.min_healthy * processes - 1e-9)


def limits_of(options: Mapping[str, Any]) -> Limits:
    """The limits among the options of workers.

    Args:
        options: `num_workers`, keywords of `Limits`, and others.

    Raises:
        ConfigError: a number is out of range, or needs a process that can be ended and replaced where there is none.
    """
    limits = Limits(**{each.name: options[each.name] for each in fields(Limits) if each.name in options})
    if options.get("num_workers", 0) == 0:
        for name in ("sample_timeout_s", "reset_timeout_s", "step_timeout_s", "max_memory_mb"):
            if (value := getattr(limits, name)) is not None:
                raise ConfigError(
                    f"workers.{name}={value} with num_workers=0: the process that trains cannot be replaced; set "
                    "workers.num_workers=1 or more"
                )
    return limits


@dataclass(frozen=True, slots=True)
class News:
    """What a process tells about itself with every answer.

    Attributes:
        states: what its successor has to know, by worker index.
        env_restarts: times that its environments were made anew, since it last told.
        memory_mb: that it occupies, MiB.
    """

    states: dict[int, dict[str, int]]
    env_restarts: int
    memory_mb: float


@dataclass(slots=True, eq=False)
class Request:
    """Something that a process is asked to do; asked again, of its successor, where it dies over it.

    Attributes:
        number: which process.
        method: what it does.
        arguments: makes the arguments when it is handed over, so that they are those of then.
        apart: whether the result stays where it is, and only what the process tells about it comes here.
        timed: whether its duration says how long the next such request should take.
        tell: called with the request when it is done.
        handed: handed over to a process, which has not died since.
        done: ended, with `value` or lost.
        lost: its process has been given up.
        wanted: whether anybody still waits for it.
        value: what came back.
        held: stands for what stayed there.
        note: of whoever asks, made with the arguments.
    """

    number: int
    method: str
    arguments: Callable[[Request], tuple[Any, ...]]
    apart: bool = False
    timed: bool = False
    tell: Callable[[Request], None] | None = None
    handed: bool = False
    done: bool = False
    lost: bool = False
    wanted: bool = True
    value: Any = None
    held: Any = None
    note: Any = None


@dataclass(slots=True, eq=False)
class Process:
    """One place in the set, and the process that fills it now.

    Attributes:
        number: the place.
        handle: of the transport; `None` while there is no process.
        state: "up"; "starting": it makes its environments; "waiting": for its restart; "lost": given up.
        queue: what it is asked, in order; the first is being done.
        tokens: of those in the queue that were handed over, in order.
        since: when the first was begun, seconds.
        restart_at: when to restart, while waiting.
        usual: seconds that a timed request takes, smoothed; `None`: not known yet.
        failures: in a row, with nothing done in between.
        overdue: of these, those that took too long.
        deaths: of these, those that were deaths over what it was asked.
        heard: token of the newest request of which something was heard.
        served: requests done so far, also by its predecessors.
        served_here: of these, those that its present process did.
        new_seeds: whether what failed must be begun differently this time.
    """

    number: int
    handle: Any = None
    state: str = "waiting"
    queue: deque[Request] = field(default_factory=deque)
    tokens: deque[int] = field(default_factory=deque)
    since: float = 0.0
    restart_at: float = 0.0
    usual: float | None = None
    failures: int = 0
    overdue: int = 0
    deaths: int = 0
    heard: int = -1
    served: int = 0
    served_here: int = 0
    new_seeds: bool = False

    def allowed(self, limits: Limits) -> float:
        """Seconds that the request at the head of the queue may take; a repeated one gets twice as many each time."""
        if self.state == "starting":
            return limits.start_timeout_s * 2.0 ** min(self.overdue, 32)
        if not self.queue[0].timed:
            return CALL_PATIENCE * limits.start_timeout_s
        if limits.sample_timeout_s is not None:
            return limits.sample_timeout_s
        if self.usual is None:
            return limits.start_timeout_s * 2.0 ** min(self.overdue, 32)
        return max(SHORTEST_DEADLINE_S, PATIENCE * self.usual) * 2.0 ** min(self.overdue, 32)

    def too_slow(self, limits: Limits) -> str:
        """What to say when it has taken longer than allowed, and which limit that was."""
        starting = self.state == "starting"
        said = f"took more than {self.allowed(limits):g} s {'to start' if starting else f'for {self.queue[0].method}'}"
        if not starting and self.queue[0].timed and limits.sample_timeout_s is not None:
            why = f"workers.sample_timeout_s={limits.sample_timeout_s:g}: raise it, or set it to null"
        elif not starting and self.queue[0].timed and self.usual is not None:
            why = f"usual are {self.usual:.3g} s; workers.sample_timeout_s sets a limit of your own"
        else:
            why = f"workers.start_timeout_s={limits.start_timeout_s:g}: raise it where this is usual"
        return f"{said}, and was ended ({why})"

    def took(self, seconds: float) -> None:
        """A timed request is done."""
        self.usual = seconds if self.usual is None else self.usual + SMOOTHING * (seconds - self.usual)
