"""`lightning-rl list` and `describe`: the available choices, and the meaning of each."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning_rl.callbacks.metric_names import METRICS
from lightning_rl.cli.parser import Parser
from lightning_rl.config import descriptions
from lightning_rl.errors import ConfigError
from lightning_rl.run_directory.listing import runs_below

__all__ = ["describe", "list_choices"]

SORTS = ("age", "return", "best", "env_steps", "env", "policy")
LISTS = {
    "policies": "policy",
    "envs": "env",
    "experiments": "experiment",
    "models": "model",
    "explorations": "exploration",
    "data": "data",
    "loggers": "logger",
}


def list_choices(arguments: Sequence[str]) -> int:
    """List available choices: list [policies|envs|experiments|models|explorations|data|loggers|metrics|runs [DIR]]."""
    parser = Parser(prog="lightning-rl list", description=list_choices.__doc__)
    parser.add_argument(
        "kind", nargs="?", choices=[*LISTS, "metrics", "runs"], help="kind of choices; default: all but runs"
    )
    parser.add_argument(
        "directory", nargs="?", type=Path, help="with runs: directory to search, at any depth; default ./runs"
    )
    parser.add_argument("--env", default="", help="with runs: only runs whose environment id contains this")
    parser.add_argument("--policy", default="", help="with runs: only runs whose policy class contains this")
    parser.add_argument(
        "--sort", choices=SORTS, default="age", help="with runs: sort key, with the best, largest or newest first"
    )
    options = parser.options(arguments)
    if options.kind == "runs":
        directory, rows = options.directory or Path("runs"), sorted_runs(options)
        parser.show({"runs": rows}, descriptions.run_table(rows, directory))
        return 0
    if options.directory is not None:
        raise ConfigError(f"list {options.kind} takes no directory; `list runs {options.directory}` does")
    kinds = [options.kind] if options.kind else [*LISTS, "metrics"]
    found = {kind: METRICS if kind == "metrics" else descriptions.choices(LISTS[kind]) for kind in kinds}
    parser.show(found, "\n\n".join(descriptions.listing(kind, names) for kind, names in found.items()))
    return 0


def sorted_runs(options: Namespace) -> list[dict[str, Any]]:
    """The runs below a directory, filtered and sorted by the options."""
    rows = [
        row
        for row in runs_below(options.directory or Path("runs"))
        if all(getattr(options, name).lower() in str(row[name]).lower() for name in ("env", "policy"))
    ]
    if options.sort in ("env", "policy"):
        rows.sort(key=lambda row: str(row[options.sort]))
    elif options.sort != "age":  # the runs without such a number last
        rows.sort(key=lambda row: number_or_least(row[options.sort]), reverse=True)
    return rows


def number_or_least(value: float | None) -> float:
    """A number by which to sort; minus infinity for none and NaN."""
    return -math.inf if value is None or math.isnan(value) else value


def describe(arguments: Sequence[str]) -> int:
    """Explain a choice, a key or a metric: describe policy=ppo, describe workers, describe policy.lr."""
    parser = Parser(prog="lightning-rl describe", description=describe.__doc__)
    parser.add_argument("what", nargs="?", default="train", help="group=choice, group, key, or metric to describe")
    print(descriptions.describe(parser.parse_args(arguments).what))
    return 0
