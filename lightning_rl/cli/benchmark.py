"""`lightning-rl benchmark`: the benchmark programs of the source checkout."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lightning_rl.errors import ConfigError

__all__ = ["benchmark"]


def benchmark(arguments: Sequence[str]) -> int:
    """Measure this machine: benchmark [arguments of scripts/benchmark.py]."""
    script = Path(__file__).parents[2] / "scripts" / "benchmark.py"
    if not script.is_file():
        raise ConfigError(
            f"{script} is not there: the benchmark is in the source checkout, not in the installed package"
        )
    return subprocess.call([sys.executable, str(script), *arguments])
