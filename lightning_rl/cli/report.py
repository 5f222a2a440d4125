"""`lightning-rl report`: writes an HTML page about runs, and checks their scores against a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lightning_rl.cli.parser import EXIT_CODES, Parser
from lightning_rl.errors import printable

__all__ = ["report"]


def report(arguments: Sequence[str]) -> int:
    """Write an HTML page about runs: report RUN|SWEEP_DIR … [--out report.html] [--check BASELINE.json]."""
    parser = Parser(prog="lightning-rl report", description=report.__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="run directories, or directories that contain runs")
    parser.add_argument(
        "--out", type=Path, help="output file; default report.html in the directory, or in . if several"
    )
    parser.add_argument("--check", type=Path, metavar="BASELINE.json", help="exit with code 1 if scores are worse")
    parser.add_argument(
        "--margin",
        type=float,
        default=0.02,
        help="with --check: tolerated loss, as a fraction of the baseline's score; default 0.02",
    )
    parser.add_argument("--save-baseline", type=Path, metavar="FILE", help="write the scores for a later --check")
    options = parser.parse_args(arguments)
    from lightning_rl.reports import baseline  # numpy
    from lightning_rl.reports.page import write_page
    from lightning_rl.reports.run_records import read_runs
    from lightning_rl.reports.summaries import Task, verdict

    earlier = None if options.check is None else baseline.read_baseline(options.check)
    tasks = Task.all_of(read_runs(options.runs))
    if options.save_baseline is not None:
        baseline.save_baseline(options.save_baseline, tasks)
    for task in tasks:
        for summary in task.summaries:
            print(printable(f"{task.env}, {summary.arm.label}: {verdict(summary)}"))
    print(write_page(options.runs, tasks, options.out))
    if earlier is None:
        return EXIT_CODES["ok"]
    checks = baseline.check_against(earlier, tasks, options.margin)
    for fine, line in checks:
        print(printable(f"{'ok' if fine else 'regression'}: {line}"))
    return EXIT_CODES["ok"] if all(fine for fine, _ in checks) else EXIT_CODES["failed"]
