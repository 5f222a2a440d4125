"""Commands that train on several ranks, and what each rank wrote."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import torch

__all__ = ["assert_ranks_agree", "results_of_ranks"]

ROOT = Path(__file__).parents[2]


def results_of_ranks(directory: Path, *arguments: str, program: str | None = None, ranks: int = 2) -> list[Any]:
    """What an interpreter's command, or a program, wrote to `rank0.pt`, … in the directory."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{directory}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *(["-c", textwrap.dedent(program)] if program else []), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=directory, env=environment, timeout=110)
    assert done.returncode == 0, done.stderr
    return [torch.load(directory / f"rank{rank}.pt", weights_only=True) for rank in range(ranks)]


def assert_ranks_agree(one: Any, other: Any, **tolerance: float) -> None:
    """Raise unless both wrote the same weights, bitwise if no tolerance is given."""
    torch.testing.assert_close(one["weights"], other["weights"], **{"rtol": 0, "atol": 0, **tolerance})
