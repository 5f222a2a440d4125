"""`lightning-rl benchmark`: the speed of runs on this machine, compared with the same work in plain PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lightning_rl.cli.benchmarks.cartpole import SCENARIOS, measure
from lightning_rl.cli.benchmarks.sides import failed
from lightning_rl.cli.parser import EXIT_CODES, Parser, whole_number
from lightning_rl.errors import check_at_least_one

__all__ = ["benchmark"]


def benchmark(arguments: Sequence[str]) -> int:
    """Compare the speed of runs with plain PyTorch: benchmark [solve|same_work|throughput|all] [--repeats 3]."""
    epilog = "Exit code 1 if one side did not reach the expected return; its speed is then not compared."
    parser = Parser(prog="lightning-rl benchmark", description=benchmark.__doc__, epilog=epilog)
    parser.add_argument(
        "scenario", nargs="?", choices=[*SCENARIOS, "all"], default="same_work", help="benchmark to run"
    )
    parser.add_argument("--repeats", type=whole_number, default=3, help="rounds, with seeds 0, 1, …; default 3")
    parser.add_argument(
        "--env-steps", type=whole_number, default=30_000, help="env steps per run, ten times as many for throughput"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements to FILE")
    options = parser.parse_args(arguments)
    check_at_least_one("--", repeats=options.repeats, **{"env-steps": options.env_steps})
    names = list(SCENARIOS) if options.scenario == "all" else [options.scenario]
    measured = measure(names, options.repeats, options.env_steps, options.json)
    return EXIT_CODES["failed" if failed(measured["scenarios"]) else "ok"]
