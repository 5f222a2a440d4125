"""How often supervised processes may fail, and how long they may take.

No torch is imported here, so that a mistake in the config is found before anything heavy is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from lightning_rl.errors import ConfigError
from lightning_rl.schema.ranges import Count, NonNegative, Portion, Positive, Whole
from lightning_rl.schema.signatures import check_fields

__all__ = ["Limits", "limits_of"]

LONGEST_BACKOFF_S = 60.0


@check_fields("workers")
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How often processes may fail, and how long they may take.

    Args:
        max_restarts: restarts of processes in the whole run, ≥ 0.
        max_failures: failures of one process in a row, without a finished request in between, ≥ 1; then the process is
            given up.
        restart_backoff_s: wait before the second restart in a row; it doubles each time, up to a minute. The first
            restart is immediate.
        min_healthy: share of the processes that must not be given up, in (0, 1]; with fewer the run stops.
        start_timeout_s: seconds for a process to start, make its environments, and sample for the first time.
        sample_timeout_s: seconds for a request to sample; `None`: 20 times the process's usual time, at least a minute.
        reset_timeout_s, step_timeout_s: seconds for a reset or step of a process's environments; `None`: only the
            limits above.
        max_memory_mb: resident memory, MiB, above which a process is replaced after it has answered; `None`: no limit.

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
        """Seconds to wait before a restart after `in_a_row` ≥ 1 failures."""
        if in_a_row == 1:
            return 0.0
        return min(LONGEST_BACKOFF_S, self.restart_backoff_s * 2.0 ** min(in_a_row - 2, 32))

    def least_healthy(self, processes: int) -> int:
        """How many of `processes` must not be given up."""
        return math.ceil(self.min_healthy * processes - 1e-9)


def limits_of(options: Mapping[str, Any]) -> Limits:
    """The limits among the options of workers.

    Args:
        options: `num_workers`, keywords of `Limits`, and others.

    Raises:
        ConfigError: a number is out of range, or is a limit of worker processes although `num_workers` is 0.
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
