"""`lightning-rl record` and `lightning-rl data`: record a data set with a policy, and summarize one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from lightning_rl.cli.parser import COLUMNS, Parser, add_policy_arguments, whole_number
from lightning_rl.config import descriptions

__all__ = ["data", "record"]


def record(arguments: Sequence[str]) -> int:
    """Record episodes of a policy as a data set: record RUN_DIR --out DIR [--episodes 1000] [--explore] [--random 0.3].

    `record random --env cartpole --out DIR` records random play.
    """
    parser = Parser(prog="lightning-rl record", description=record.__doc__)
    add_policy_arguments(parser, episodes=1000)
    parser.add_argument("--out", type=Path, required=True, help="directory to add the shards to")
    parser.add_argument(
        "--random", type=float, default=0.0, metavar="SHARE", help="fraction of episodes with random actions"
    )
    limit = "maximum episode length; default: the environment's limit, or 5000"
    parser.add_argument("--max-steps", type=whole_number, help=limit)
    options = vars(parser.options(arguments))
    from lightning_rl.runs.recording import record_episodes  # torch

    result = record_episodes(**options, say=lambda line: print(line, file=sys.stderr, flush=True))
    parser.show(result, descriptions.data_set(result))
    return 0


def data(arguments: Sequence[str]) -> int:
    """Summarize a data set: data DIR [--json]; damaged shards are skipped and listed.

    `--report FILE.html` writes a page with histograms, and what the data can and cannot tell.
    `data SOURCE --to minari:NAME`, FILE.hdf5 or a new directory writes it in another format.
    `--format arrow` and `--format parquet` are Minari's other formats of minari:NAME.
    """
    parser = Parser(prog="lightning-rl data", description=data.__doc__)
    parser.add_argument("source", help="a directory of shards, or a file, as for data.input")
    parser.add_argument("--columns", **COLUMNS)
    to = "write the data set here instead: minari:NAME, a file.hdf5 (D4RL's format), or a new directory for shards"
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="also write a page with histograms")
    parser.add_argument("--to", metavar="TARGET", help=to)
    minari = "format of minari:NAME: hdf5 (default), arrow or parquet"
    parser.add_argument("--format", choices=("hdf5", "arrow", "parquet"), help=minari)
    options = parser.options(arguments)
    from lightning_rl.data.offline.data_set import convert, open_data
    from lightning_rl.data.offline.summary import summary

    if options.to is not None:
        written = convert(open_data(options.source, options.columns), options.to, options.format)
        parser.show({"written": written}, str(written))
        return 0
    result = summary(open_data(options.source, options.columns, skip_damaged=True))
    parser.show(result, descriptions.data_set(result))
    if options.report is not None:
        from lightning_rl.reports.data_page import data_page
        from lightning_rl.run_directory.atomic import save_text

        save_text(options.report, data_page(result))
    return 1 if result["damaged"] else 0
