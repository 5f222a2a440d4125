"""Scenario of `benchmark.py` for replay buffers: batches of 256 a second, and rows a second inserted."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sides import ROOT, peer

from lightning_rl.cli.benchmarks.sides import Round, Side, alternate, best, report

__all__ = ["replay"]

SIZES = ("--vectors", "1000000", "--images", "20000")
KINDS = ("vectors_uniform", "vectors_priority", "images_uniform", "images_priority")
NUMBERS = (*KINDS, *(f"add_{kind}" for kind in KINDS))
PEERS = ("cpprb", "tianshou", "sb3", "torchrl")


def replay(args: argparse.Namespace) -> dict[str, object]:
    """A million rows of 4 floats and 20 000 of 84 × 84 × 4 bytes, one torch thread; batches come as tensors."""
    own = Side("ours", (sys.executable, str(ROOT / "scripts" / "replay_speed.py"), *SIZES))
    peers = [peer(name, args.venvs, f"{name}_replay", *SIZES) for name in PEERS]
    rounds = alternate([own, *peers], args.repeats)
    return report(
        "replay", rounds, NUMBERS, [("ours", fastest(rounds, number), number) for number in NUMBERS], learned=None
    )


def fastest(rounds: Sequence[Round], number: str) -> str:
    """The best peer among those that have such a buffer at all."""
    return best(rounds, [name for name in PEERS if number in rounds[0][name]], number)
