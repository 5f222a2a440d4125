"""How much memory this process occupies."""

from __future__ import annotations

import resource
import sys

__all__ = ["resident_mb"]

MB = 1024**2


def resident_mb() -> float:
    """Memory that this process occupies now, MiB; on systems other than Linux, the most it has occupied so far."""
    if sys.platform == "linux":
        with open("/proc/self/statm", "rb", buffering=0) as statm:
            return int(statm.read().split()[1]) * resource.getpagesize() / MB
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / MB if sys.platform == "darwin" else peak / 1024
