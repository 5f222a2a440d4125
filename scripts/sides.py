"""The sides of a benchmark that are not part of the package: peers in virtual environments, and loops beside them."""

from __future__ import annotations

import sys
from pathlib import Path

from lightning_rl.cli.benchmarks.sides import Side

__all__ = ["PEERS", "ROOT", "loop", "peer"]

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "scripts" / "peers"


def loop(name: str, *arguments: str, program: str) -> Side:
    """A hand-written loop of scripts/peers, in the interpreter that runs this script."""
    return Side(name, (sys.executable, str(PEERS / f"{program}.py"), *arguments))


def peer(name: str, venvs: Path, program: str, *arguments: str) -> Side:
    """A peer in its virtual environment.

    Raises:
        FileNotFoundError: it is not there.
    """
    python = venvs / program.split("_")[0] / "bin" / "python"
    if not python.exists():
        raise FileNotFoundError(f"no {python}: run `python scripts/benchmark.py setup --venvs {venvs}` first")
    return Side(name, (str(python), str(PEERS / f"{program}.py"), *arguments))
