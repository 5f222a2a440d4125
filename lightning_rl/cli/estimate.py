"""`lightning-rl estimate`: the return of a policy, from recorded episodes of other policies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lightning_rl.cli.parser import COLUMNS, TRUST, Parser, whole_number
from lightning_rl.config import descriptions

__all__ = ["estimate"]


def estimate(arguments: Sequence[str]) -> int:
    """Estimate a policy's return from recorded episodes: estimate RUN_DIR DATA [--estimators wis dr] [--json]."""
    parser = Parser(prog="lightning-rl estimate", description=estimate.__doc__)
    parser.add_argument("checkpoint", type=Path, help="a .ckpt file, or a run directory for its last.ckpt")
    parser.add_argument("data", help="a directory of shards or a file, the same as for data.input")
    parser.add_argument("--columns", **COLUMNS)
    normalized = "the actions of a file are in the policy's own space, the same as data.actions_normalized"
    parser.add_argument("--actions-normalized", action="store_true", help=normalized)
    parser.add_argument("--skip-damaged", action="store_true", help="skip damaged shards, with a warning")
    parser.add_argument(
        "--best", action="store_true", help="use the checkpoint with the best evaluation instead of last.ckpt"
    )
    which = "is, pdis, wis, dm, dr; default: all that the policy and the data allow"
    parser.add_argument("--estimators", nargs="+", metavar="NAME", help=which)
    random = "evaluate the greedy policy with this probability of a random action; default: the sampling policy"
    parser.add_argument("--epsilon", type=float, help=random)
    parser.add_argument("--gamma", type=float, help="discount; default: the policy's")
    parser.add_argument("--confidence", type=float, default=0.9, help="coverage of the intervals; default 0.9")
    parser.add_argument("--fqe-steps", type=whole_number, default=5000, help="gradient steps of dm and dr's Q-function")
    parser.add_argument(
        "--seed", type=whole_number, default=0, help="seed of the Q-function and of the resampling; default 0"
    )
    parser.add_argument("--trust", **TRUST)
    options = vars(parser.options(arguments))
    from lightning_rl.runs import estimation  # torch

    result = estimation.estimate(**options)
    parser.show(result, descriptions.estimates(result))
    return 0
